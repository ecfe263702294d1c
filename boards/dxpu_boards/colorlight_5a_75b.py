"""Colorlight 5A-75B, hardware 7.0 and 8.0, with an ECP5 of 24 k LUTs, speed 6: two RGMII PHYs.

LED receiver cards. One PHY is used, as a second path does not fit the part. Pins of 7.0 are
amaranth-boards', those of 8.0 chubby75's
(`5a-75b/hardware_V8.0.md`, https://github.com/q3k/chubby75), reverse-engineered by others from the
boards. On both, the PHYs share reset, MDC and MDIO, so these pins belong to path 0; the FPGA pulls
MDIO up. The flash has 4 MB, that of older cards 2 MB (chubby75).
"""

from amaranth.build import Attrs, Clock as Oscillator, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform
from amaranth_boards.resources import LEDResources

from .board import ONE_SLOT, Board, with_resources
from .clocks import Clock
from .mdio import mdio_pulled_up

__all__ = ["BOARDS", "Platform70", "Platform80"]

IO = Attrs(IO_TYPE="LVCMOS33")


def _phy(number, tx_clk, tx_ctl, tx_data, rx_clk, rx_ctl, rx_data, *common):
    return Resource("eth_rgmii", number, *common,
                    Subsignal("tx_clk", Pins(tx_clk, dir="o")),
                    Subsignal("tx_ctl", Pins(tx_ctl, dir="o")),
                    Subsignal("tx_data", Pins(tx_data, dir="o")),
                    Subsignal("rx_clk", Pins(rx_clk, dir="i")),
                    Subsignal("rx_ctl", Pins(rx_ctl, dir="i")),
                    Subsignal("rx_data", Pins(rx_data, dir="i")), IO)


class Platform70(Colorlight_5A75B_R70Platform):
    """Upstream lists the pins shared by the PHYs for both, so that only one PHY could be used."""

    resources = with_resources(
        mdio_pulled_up(Colorlight_5A75B_R70Platform.resources),
        _phy(1, "M12", "R15", "T14 R12 R13 R14", "M16", "L15", "P13 N13 P14 M15"))


class Platform80(LatticeECP5Platform):
    """The resources that a proxy needs.

    The FPGA's clock comes from a PHY, so the PHYs' reset (R6) is left alone: driving it stops the
    clock.
    """

    device, package, speed = "LFE5U-25F", "BG256", "6"
    default_clk = "clk25"
    connectors = []
    resources = mdio_pulled_up([
        Resource("clk25", 0, Pins("P6", dir="i"), Oscillator(25e6), IO),
        *LEDResources(pins="T6", invert=True, attrs=IO),
        Resource("button", 0, PinsN("R7", dir="i"), Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")),
        _phy(0, "L1", "L2", "M2 M1 P1 R1", "J1", "J2", "K2 J3 K1 K3",
             Subsignal("mdc", Pins("R5", dir="o")), Subsignal("mdio", Pins("T4", dir="io"))),
        _phy(1, "J16", "K14", "K16 J15 J14 K15", "M16", "P16", "M15 R16 L15 L16"),
    ])


def _board(version, platform, *notes):
    return Board(
        name="colorlight-5a-75b" + ("" if version == "7.0" else f"-v{version.partition('.')[0]}"),
        title=f"Colorlight 5A-75B {version}",
        platform=platform,
        # 64 bits at 31.25 MHz carry 2 Gb/s; speed 6 does not reach twice that.
        clocks=(Clock("sync", 31.25), Clock("tx", 125), Clock("tx90", 125, phase=90)),
        paths=(0,),
        roles={"box": ONE_SLOT},
        loader=(),
        record=0x1F0000,
        notes=("no PCIe and no SERDES: only a box with GPUs inside the FPGA",
               "no host, as nothing could be above its switch",
               "one of the two Ethernet ports: a second path does not fit",
               *notes,
               "no cable on the board: JTAG by pins"),
    )


BOARDS = (
    _board("7.0", Platform70),
    _board("8.0", Platform80, "a PHY makes the FPGA's clock, so the PHYs are never reset"),
)
