"""Lattice ECP5-5G Versa: two RGMII PHYs, PCIe x1 edge connector.

Pins are amaranth-boards'; those of PCIe are litex-boards' (`platforms/versa_ecp5.py`). The lane and
its reference clock belong to the SERDES: nextpnr places EXTREFB and DCUA by their attributes, and
accepts no constraint for such a pin, so that resource is for users of these primitives. PERST# is
an ordinary pin, pulled up, so that a board on a bench is not in reset; so is MDIO.
"""

from amaranth.build import Attrs, DiffPairs, PinsN, Resource, Subsignal
from amaranth_boards.versa_ecp5_5g import VersaECP55GPlatform

from .board import FOUR_SLOTS, Board, with_resources
from .clocks import CORE_83, Clock
from .mdio import mdio_pulled_up

__all__ = ["BOARD", "Platform"]


class Platform(VersaECP55GPlatform):
    """With the PCIe edge connector, which upstream lacks, and a pull-up at MDIO."""

    resources = with_resources(
        mdio_pulled_up(VersaECP55GPlatform.resources),
        Resource("pcie", 0,
                 Subsignal("clk", DiffPairs("Y11", "Y12", dir="i")),
                 Subsignal("rx", DiffPairs("Y5", "Y6", dir="i")),
                 Subsignal("tx", DiffPairs("W4", "W5", dir="o"))),
        Resource("perst", 0, PinsN("A6", dir="i"), Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")))


BOARD = Board(
    name="versa-ecp5-5g",
    title="Lattice ECP5-5G Versa",
    platform=Platform,
    clocks=(CORE_83, Clock("tx", 125), Clock("tx90", 125, phase=90)),
    paths=(0, 1),
    roles={"host": FOUR_SLOTS, "box": FOUR_SLOTS},
    pcie="x1 edge connector",
    pcie_clock=Clock("pcie", 62.5),
    loader=("--cable", "ft2232"),
    record=0x3F0000,
    notes=("the jumpers of the JTAG chain must leave the ispCLOCK device out",
           "of PCIe, litex-boards is the only source"),
)
