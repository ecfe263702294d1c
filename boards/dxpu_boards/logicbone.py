"""LogicBone, with an ECP5-5G of 45 k LUTs: one RGMII PHY, two SERDES lanes at connectors.

Pins are amaranth-boards'. The reset of the PHY is not wired to the FPGA. MDIO has only the pull-up
of the FPGA, which the board's maker found too weak (a report in oskirby/logicbone).

The flash has 16 MB. The boot loader has partitions: 1 or 2 MB from 0 for itself, then 2 or 3 MB for
an image; the rest is for data (tinydfu-bootloader, `boards/logicbone_ecp5/boardinfo.vh`). The
record takes the last 64 KiB but one of the data; the very last may hold a jump command of the ECP5.
"""

from amaranth_boards.logicbone import LogicbonePlatform

from .board import ONE_SLOT, Board
from .clocks import Clock
from .mdio import mdio_pulled_up

__all__ = ["BOARD", "Platform"]


class Platform(LogicbonePlatform):
    """With a pull-up at MDIO."""

    resources = mdio_pulled_up(LogicbonePlatform.resources)


BOARD = Board(
    name="logicbone",
    title="LogicBone",
    platform=Platform,
    clocks=(Clock("sync", 62.5, margin=0.1), Clock("tx", 125), Clock("tx90", 125, phase=90)),
    paths=(0,),
    roles={"box": ONE_SLOT},
    boot_loader=True,
    record=0xFE0000,
    notes=("no host: without a UART or a PCIe PHY nothing could reach it",
           "MDIO lacks a resistor to 3.3 V, and the FPGA's pull-up may be too weak: 1.5 to 5 kOhm",
           "no PCIe connector; two SERDES lanes (`serdes`) without a reference clock upstream",
           "no cable on the board: JTAG by pins, or its USB boot loader (dfu-util)"),
)
