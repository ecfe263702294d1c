"""Figures published in the paper, and nothing else: no figure of ours, nothing fitted.

Ref: He et al., "DxPU: Large Scale Disaggregated GPU Pools in the Datacenter", ACM TACO 20(4),
article 55, 2023; arXiv:2310.04648. Times are in us, bandwidths in GB/s, performance is the share of
a native GPU's speed in percent. Figures missing in the article are missing here.
"""

from dataclasses import dataclass

__all__ = ["BERT_PERCENT", "CONVERSION_US", "CPU_PARAMETER_DEVICE", "EQUATION_1_GB_S", "FIGURE_4",
           "GLMARK2_IDEAS", "GRAPHICS_PERCENT", "IMAGENET_PERCENT", "KERNEL_KINDS",
           "MULTI_GPU_PERCENT", "NATIVE_ROUND_TRIP_US", "NCF_PERCENT", "NETWORK_US",
           "PEER_TO_PEER_PERCENT", "READS_GB_S", "READ_BYTES", "RESNET50", "ROUND_TRIPS_US",
           "SHORT_KERNELS_PERCENT", "SSD320", "TABLE_12_GB_S", "TABLE_4", "TABLE_8_PERCENT", "TAGS",
           "WRITES_BY_CPU_GB_S", "WRITES_GB_S", "CopyRun", "KernelRun", "Table4"]

# --- The system: sections 3.4 and 4, tables 6 and 7 --------------------------------------------

#: Reads that a GPU has under way at once, and bytes of each.
TAGS = 140
READ_BYTES = 128
#: Round trips of the two systems that the paper built.
ROUND_TRIPS_US = (4.9, 6.8)
#: Parts of the round trip of 6.8 us (table 6): what a native GPU has, network, packet conversion.
NATIVE_ROUND_TRIP_US = 1.2
NETWORK_US = 1.9
CONVERSION_US = 3.7

#: What equation 1 gives at each round trip.
EQUATION_1_GB_S = {4.9: 3.66, 6.8: 2.64}
#: Measured copies from host to GPU, by round trip (1.2: native), and from GPU to host.
READS_GB_S = {1.2: 11.2, 4.9: 3.9, 6.8: 2.7}
WRITES_GB_S = {1.2: 12.5, 6.8: 11.6}
#: Measured copies from host to GPU by writes of the CPU, in place of reads of the GPU (5.1).
WRITES_BY_CPU_GB_S = 9.44


# --- Models and workloads ----------------------------------------------------------------------


@dataclass(frozen=True)
class Table4:
    """Performance of ResNet-50 by the paper's own model, and measured, in percent."""

    model_percent: float
    measured_percent: float


#: Table 4, by round trip.
TABLE_4 = {4.9: Table4(92.56, 91.50), 6.8: Table4(91.40, 89.56)}
#: Figure 4: performance of ResNet-50 by the paper's own model, by round trip.
FIGURE_4 = {8.0: 90.0, 19.0: 80.0}


@dataclass(frozen=True)
class KernelRun:
    """A run with a published mean duration of kernels.

    Parameters
    ----------
    name : str
        Workload and parameters.
    source : str
        Table or section.
    mean_us : float
        Mean duration of kernels on a native GPU.
    percent : float
        Performance behind DxPU at 6.8 us.
    kind : str
        A member of :data:`KERNEL_KINDS`.
    batch : int
        Size of a batch; 0 where there is none.
    """

    name: str
    source: str
    mean_us: float
    percent: float
    kind: str
    batch: int = 0


#: What a run does; runs of a kind synchronise alike.
KERNEL_KINDS = ("training", "inference", "training, XLA", "graphics", "detection")
#: Mean durations of ResNet-50's kernels in inference are published as multiples of those in
#: training.
RESNET50 = (
    KernelRun("training, batch 32", "table 9", 56.0, 85.2, "training", 32),
    KernelRun("training, batch 64", "table 9", 102.3, 92.7, "training", 64),
    KernelRun("training, batch 128", "table 9", 193.0, 95.5, "training", 128),
    KernelRun("inference, batch 32", "table 9", 56.0 * 1.482, 95.4, "inference", 32),
    KernelRun("inference, batch 64", "table 9", 102.3 * 1.555, 98.6, "inference", 64),
    KernelRun("inference, batch 128", "table 9", 193.0 * 1.551, 99.5, "inference", 128),
    KernelRun("training with XLA, batch 64", "table 9", 131.0, 97.5, "training, XLA", 64),
)
GLMARK2_IDEAS = (
    KernelRun("glmark2 ideas, first size", "section 4, graphics", 65.6, 87.9, "graphics"),
    KernelRun("glmark2 ideas, second size", "section 4, graphics", 122.8, 91.0, "graphics"),
    KernelRun("glmark2 ideas, third size", "section 4, graphics", 221.6, 93.0, "graphics"),
)
SSD320 = (
    KernelRun("SSD320 training, batch 8", "section 4, SSD320", 10.7, 81.5, "detection", 8),
    KernelRun("SSD320 training, batch 16", "section 4, SSD320", 8.2, 84.6, "detection", 16),
    KernelRun("SSD320 training, batch 32", "section 4, SSD320", 7.9, 84.5, "detection", 32),
    KernelRun("SSD320 training, batch 64", "section 4, SSD320", 8.1, 83.6, "detection", 64),
)
#: Share of kernels of ResNet-50's training that take at most 10 us, by batch size.
SHORT_KERNELS_PERCENT = {32: 59.3, 64: 58.9, 128: 58.3}


@dataclass(frozen=True)
class CopyRun:
    """A run of ResNet-50 with parameters on the CPU, copied in each step.

    ``copy_percent`` is the share of copies from host to GPU in the time of a native run, and
    ``mean_copy_us`` the mean duration of one of them (table 11); None where we do not have them.
    """

    name: str
    percent: float
    copy_percent: float | None = None
    mean_copy_us: float | None = None


#: Tables 9 and 11, parameter device CPU.
CPU_PARAMETER_DEVICE = (
    CopyRun("training, synthetic data", 90.9),
    CopyRun("training, ImageNet", 83.4),
    CopyRun("inference, synthetic data", 90.5),
    CopyRun("inference, ImageNet", 84.1),
    CopyRun("inference with XLA", 74.0, 16.7, 11.3),
)
#: Table 9, ImageNet, parameters on the GPU: the least and the most of its rows.
IMAGENET_PERCENT = (83.8, 97.7)
#: Table 8, twelve basic workloads: the least and the most of its rows.
TABLE_8_PERCENT = (96.3, 99.5)
#: Training of ResNet-50 with batch 64, by number of GPUs.
MULTI_GPU_PERCENT = {1: 92.7, 2: 90.3, 4: 87.5, 8: 82.4}
#: Table 12: host-to-GPU bandwidth of all GPUs under one proxy, by their number, of two runs.
TABLE_12_GB_S = {"first run": {1: 1.5, 2: 2.6, 4: 4.9, 8: 8.4},
                 "second run": {1: 1.4, 2: 2.6, 4: 5.0, 8: 8.3}}
#: Figure 7: bandwidth from GPU to GPU over two proxies, as share of that under one bridge.
PEER_TO_PEER_PERCENT = 74.0
#: Training of BERT by number of GPUs, as published: three figures.
BERT_PERCENT = (94.6, 93.8, 93.4)
#: Training of NCF: the least and the most of its rows.
NCF_PERCENT = (96.8, 98.3)
#: Unigine Valley and Heaven.
GRAPHICS_PERCENT = {"Valley": 97.4, "Heaven": 88.7}
