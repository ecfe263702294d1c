"""ButterStick r1.0, with an ECP5-5G of 85 k LUTs: one RGMII PHY, SERDES at a SYZYGY connector.

Pins are amaranth-boards'; the FPGA pulls MDIO up. The voltages of the SYZYGY ports, which the
proxies do not need, are off.

The flash has 16 MB (butterstick-hardware, `hardware/ButterStick_r1.0`). The boot loader, from 0,
puts images at 0x400000 and 0x800000 by its source, at 0x100000 and 0x400000 by its strings
(butterstick-bootloader, `firmware`): either way no image of 85 k LUTs comes near the end. The last
64 KiB are left alone, as they may hold a jump command of the ECP5.
"""

from amaranth_boards.butterstick import ButterStickPlatform

from .board import ONE_SLOT, Board
from .clocks import Clock
from .mdio import mdio_pulled_up

__all__ = ["BOARD", "Platform"]


class Platform(ButterStickPlatform):
    """With a pull-up at MDIO."""

    resources = mdio_pulled_up(ButterStickPlatform.resources)


BOARD = Board(
    name="butterstick",
    title="ButterStick r1.0",
    platform=Platform,
    clocks=(Clock("sync", 62.5, margin=0.1), Clock("tx", 125), Clock("tx90", 125, phase=90)),
    paths=(0,),
    roles={"box": ONE_SLOT},
    pcie="four lanes at the SYZYGY-TXR connector (an adapter is needed)",
    boot_loader=True,
    record=0xFE0000,
    notes=("no host: without a UART or a PCIe PHY nothing could reach it",
           "no cable on the board: JTAG by pins, or its USB boot loader (dfu-util)"),
)
