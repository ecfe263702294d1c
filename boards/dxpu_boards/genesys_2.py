"""Digilent Genesys 2, with a Kintex-7 325T: one RGMII PHY. For the vendor's tools.

Pins are amaranth-boards'; litex-boards agrees for Ethernet, clock and reset. The FPGA pulls MDIO
up.
"""

from amaranth_boards.genesys2 import Genesys2Platform

from .board import Board, Shape
from .clocks import Clock
from .io_delay import SERIES7_INPUT
from .mdio import mdio_pulled_up
from .pll import MMCME2
from .rings import SERIES7_CELLS

__all__ = ["BOARD", "Platform"]


class Platform(Genesys2Platform):
    """With a pull-up at MDIO."""

    resources = mdio_pulled_up(Genesys2Platform.resources, PULLUP="TRUE")


BOARD = Board(
    name="genesys-2",
    title="Digilent Genesys 2",
    platform=Platform,
    clocks=(Clock("sync", 125), Clock("tx", 125), Clock("tx90", 125, phase=90)),
    paths=(0,),
    roles={"host": Shape(), "box": Shape()},
    pcie="GTX lanes at the FMC connector (an adapter is needed)",
    loader=("--board", "genesys2"),
    notes=("the vendor's tools have to be run",),
    rx_buffer=SERIES7_INPUT,
    rx_reference="oscillator",
    pll=MMCME2,
    rings=SERIES7_CELLS,
)
