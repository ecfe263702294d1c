"""LambdaConcept ECPIX-5, with an ECP5-5G of 45 k or 85 k LUTs: one RGMII PHY.

Pins are amaranth-boards'; the FPGA pulls MDIO up. The flash has 32 MB
(https://docs.lambdaconcept.com/ecpix-5).
"""

from amaranth_boards.ecpix5 import ECPIX545Platform, ECPIX585Platform

from .board import FOUR_SLOTS, ONE_SLOT, Board
from .clocks import CORE_83, Clock
from .mdio import mdio_pulled_up

__all__ = ["BOARDS", "Platform45", "Platform85"]


class Platform45(ECPIX545Platform):
    """With a pull-up at MDIO."""

    resources = mdio_pulled_up(ECPIX545Platform.resources)


class Platform85(ECPIX585Platform):
    """With a pull-up at MDIO."""

    resources = mdio_pulled_up(ECPIX585Platform.resources)


def _board(size, platform, *, core=None, roles=None):
    return Board(
        name=f"ecpix-5-{size}",
        title=f"LambdaConcept ECPIX-5 {size.upper()}",
        platform=platform,
        clocks=(Clock("sync", 62.5, margin=0.1), Clock("tx", 125), Clock("tx90", 125, phase=90)),
        paths=(0,),
        roles={"host": ONE_SLOT, "box": ONE_SLOT} | (roles or {}),
        core=core or {},
        loader=("--board", "ecpix5"),
        record=0x3F0000,
        notes=("no PCIe connector; its SERDES are at SATA and USB-C",
               "R03 of the board has another cable (`--cable ft4232`), and the console at another "
               "port (`/dev/ttyUSB2`)"),
    )


BOARDS = (
    _board("45f", Platform45),
    _board("85f", Platform85, core={"box": CORE_83}, roles={"box": FOUR_SLOTS}),
)
