"""Bandwidth of copies between a host and a GPU, from round trip, tags and lines.

All bandwidths are in GB/s (10^9 bytes a second), times in us, line rates in Gbit/s.
"""

from dataclasses import dataclass, replace
from math import hypot

from .errors import not_negative, positive, share, whole

__all__ = ["Cable", "PCIeLink", "aggregate_gb_s", "read_gb_s", "tags_gb_s", "write_gb_s"]


#: Bytes of a TLP on the link beside header and data: STP token with the sequence number 4, LCRC 4
#: (PCIe Base 5.0, 4.2.2 and 3.6).
TLP_FRAMING_BYTES = 8


@dataclass(frozen=True)
class PCIeLink:
    """A PCIe link, and the part of the rate left for data.

    Parameters
    ----------
    generation : int
        3, 4 or 5; each carries twice the bits of the generation before.
    lanes : int
        1 to 16.
    payload_bytes : int
        Data of a TLP: Max_Payload_Size of writes, size of completions of reads.
    header_bytes : int
        12 for completions, 16 for writes to an address of 64 bits (PCIe Base 5.0, 2.2).
    dllp_share : float
        Share of the link for DLLPs (acknowledgements, credits): 0.05 is usual, and assumed.
    """

    generation: int = 3
    lanes: int = 16
    payload_bytes: int = 64
    header_bytes: int = 12
    dllp_share: float = 0.05

    def __post_init__(self) -> None:
        whole("generation", self.generation, 3, 5)
        whole("lanes", self.lanes, 1, 16)
        whole("payload_bytes", self.payload_bytes, 1, 4096)
        whole("header_bytes", self.header_bytes, 12, 16)
        share("dllp_share", self.dllp_share)

    @property
    def gb_s(self) -> float:
        """Bandwidth left for data, in GB/s: 8 GT/s a lane in generation 3, coded 128b/130b."""
        raw = (1 << self.generation - 3) * self.lanes * 128 / 130
        whole_tlp = self.payload_bytes + self.header_bytes + TLP_FRAMING_BYTES
        return raw * (1 - self.dllp_share) * self.payload_bytes / whole_tlp

    def writing(self, payload_bytes: int) -> "PCIeLink":
        """The same link, with writes of a size as traffic."""
        return replace(self, payload_bytes=payload_bytes, header_bytes=16)


@dataclass(frozen=True)
class Cable:
    """Ethernet lines between two proxies, and the part of the rate left for data.

    Parameters
    ----------
    tlp_overhead_bytes : float
        Bytes on the line for each TLP, beside the data.
    line_gbit_s : float
        Rate of a line, in Gbit/s.
    lines : int
        Lines for a single copy: 1 with go-back-N, as a session uses a single path.
    """

    tlp_overhead_bytes: float
    line_gbit_s: float = 100.0
    lines: int = 1

    def __post_init__(self) -> None:
        positive("line_gbit_s", self.line_gbit_s)
        whole("lines", self.lines, 1, 64)
        not_negative("tlp_overhead_bytes", self.tlp_overhead_bytes)

    def gb_s(self, payload_bytes: int) -> float:
        """Bandwidth left for data in TLPs of ``payload_bytes``, in GB/s."""
        kept = payload_bytes / (payload_bytes + self.tlp_overhead_bytes)
        return self.line_gbit_s / 8 * self.lines * kept


def tags_gb_s(tags: int, read_bytes: int, round_trip_us: float) -> float:
    """Bandwidth of reads allowed by tags, in GB/s: tags x read size / round trip.

    Ref: paper, section 3.4, equation 1.
    """
    whole("tags", tags, 1, 1 << 20)
    whole("read_bytes", read_bytes, 1, 4096)
    positive("round_trip_us", round_trip_us)
    return tags * read_bytes / round_trip_us / 1000


def read_gb_s(tags: int, read_bytes: int, round_trip_us: float, link: PCIeLink,
              cable: Cable | None = None) -> float:
    """Bandwidth of copies from host to GPU, in GB/s: the GPU reads the host's memory.

    The least of equation 1, the PCIe link, and the cable (none for a GPU in the host). The caps are
    no part of the paper: equation 1 alone gives 14.9 GB/s for a native GPU; 11.2 were measured.
    """
    limits = [tags_gb_s(tags, read_bytes, round_trip_us), link.gb_s]
    if cable is not None:
        limits.append(cable.gb_s(link.payload_bytes))
    return min(limits)


def write_gb_s(link: PCIeLink, payload_bytes: int, cable: Cable | None = None) -> float:
    """Bandwidth of copies from GPU to host, in GB/s: posted writes wait for no answer."""
    limits = [link.writing(payload_bytes).gb_s]
    if cable is not None:
        limits.append(cable.gb_s(payload_bytes))
    return min(limits)


def aggregate_gb_s(gpus: int, one_gpu_gb_s: float, capacity_gb_s: float) -> float:
    """Bandwidth of GPUs copying at once through a single proxy, in GB/s.

    Each of ``gpus`` asks for ``one_gpu_gb_s``; the sum is reached while small, and
    ``capacity_gb_s`` is never exceeded: ``x / sqrt(1 + (x / C)^2)`` with the sum x and the
    capacity C. The form was chosen after the paper's table 12 was seen.
    """
    whole("gpus", gpus, 1, 4096)
    asked = gpus * positive("one_gpu_gb_s", one_gpu_gb_s)
    return asked / hypot(1, asked / positive("capacity_gb_s", capacity_gb_s))
