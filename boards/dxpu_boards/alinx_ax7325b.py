"""Alinx AX7325B, with a Kintex-7 325T: PCIe x8, four SFP+, QSFP+. For the vendor's tools.

The board could have hard PCIe and a path of 10 Gb/s; DXPU has no MAC for 10 Gb/s yet, so one SFP+
cage is a path of 1 Gb/s. The cage's transceiver takes the reference clock of the neighbouring quad
(QSFP+): 1000BASE-X needs 125 MHz, and the SFP+ quad has 156.25 MHz. Pins are amaranth-boards'. The
I/O standards of clock and UART, in banks of 1.5 V and 2.5 V, come from `projects/common/ax7325b` in
github.com/dmitrodem/analogdevicesinc_hdl; upstream has others.
"""

from amaranth.build import Attrs, Clock as Oscillator, DiffPairs, Resource
from amaranth_boards.alinx_ax7325b import AX7325BPlatform
from amaranth_boards.resources import UARTResource

from .board import Board, Shape, with_resources
from .clocks import Clock
from .pll import MMCME2
from .rings import SERIES7_CELLS

__all__ = ["BOARD", "Platform"]


class Platform(AX7325BPlatform):
    """Upstream's platform with other I/O standards of clock and UART, and none at the transceivers'
    clock.
    """

    resources = with_resources(
        AX7325BPlatform.resources,
        Resource("clk", 0, DiffPairs("AE10", "AF10", dir="i"), Oscillator(200e6),
                 Attrs(IOSTANDARD="DIFF_SSTL15")),
        Resource("clk_sfp_125", 0, DiffPairs("C8", "C7", dir="i"), Oscillator(125e6)),
        UARTResource(0, rx="AJ26", tx="AK26", attrs=Attrs(IOSTANDARD="LVCMOS25")))


BOARD = Board(
    name="alinx-ax7325b",
    title="Alinx AX7325B",
    platform=Platform,
    clocks=(Clock("sync", 125),),
    paths=(),
    sfp=(0,),
    roles={"host": Shape(), "box": Shape()},
    pcie="x8 edge connector",
    loader=("--cable", "ft232"),
    notes=("no RGMII path: two sources know no PHY of 1 Gb/s, a third gives no pins",
           "one SFP+ cage, at 1 Gb/s (1000BASE-X by the vendor's core); the others and the QSFP+ "
           "wait for a MAC of 10 Gb/s",
           "pins of the PCIe reference clock are not in any source found",
           "LEDs are lit by 1 in one source, by 0 in another",
           "the vendor's tools have to be run"),
    pll=MMCME2,
    rings=SERIES7_CELLS,
)
