"""Models of Ethernet PHYs: identifiers, and register bits of RGMII delays.

This project has not confirmed any of these values on silicon. The source of each value is given
beside it; "driver" means that no data sheet was at hand and that public drivers for the PHY agree.
"""

from dataclasses import dataclass

from .rgmii import RgmiiDelays

__all__ = ["ALL", "B50612D", "KSZ9031RNX", "MV88E1512", "RTL8211E", "RTL8211F", "Phy", "Setting"]


@dataclass(frozen=True)
class Setting:
    """Bits of a register that must have a value.

    Parameters
    ----------
    register : int
        0 to 31.
    mask, value : int
        Bits of the setting, and their value. The other bits keep their present value.
    select : pairs of register and data
        Writes before every access, to select a page.
    strobe : int
        Bits that are 1 in every write, such as write enables.
    """

    register: int
    mask: int
    value: int
    select: tuple[tuple[int, int], ...] = ()
    strobe: int = 0

    def __post_init__(self):
        if not 0 <= self.register < 32:
            raise ValueError(f"register must be in 0..31, not {self.register!r}")
        if not 0 < self.mask < 1 << 16 or self.value & ~self.mask:
            raise ValueError(
                f"value {self.value:#x} must lie within a mask of 16 bits, not {self.mask:#x}")


@dataclass(frozen=True)
class Phy:
    """A model of PHY.

    Parameters
    ----------
    name : str
    identifier, mask : int
        Registers 2 (upper half) and 3, and their significant bits; the lowest four are a revision.
    tx_delay, rx_delay : tuples of settings
        Settings with which the PHY delays TXC (RXC) against the data.
    no_tx_delay, no_rx_delay : tuples of settings
        Settings without a delay.
    always : tuple of settings
        Settings for every choice of delays.
    home : pairs of register and data
        Writes after all settings, back to the page of the standard's registers.
    soft_reset : bool
        Settings take effect only by a software reset (bit 0.15), which preserves them.
    in_band : bool
        The PHY sends its status between frames by default.
    """

    name: str
    identifier: int
    tx_delay: tuple[Setting, ...]
    no_tx_delay: tuple[Setting, ...]
    rx_delay: tuple[Setting, ...]
    no_rx_delay: tuple[Setting, ...]
    mask: int = 0xFFFF_FFF0
    always: tuple[Setting, ...] = ()
    home: tuple[tuple[int, int], ...] = ()
    soft_reset: bool = False
    in_band: bool = False

    def settings(self, delays: RgmiiDelays) -> tuple[Setting, ...]:
        """All settings of this PHY on a board with ``delays``."""
        return (*self.always,
                *(self.tx_delay if delays.tx == "phy" else self.no_tx_delay),
                *(self.rx_delay if delays.rx == "phy" else self.no_rx_delay))


def _switch(register, bit, force=0, **kwargs):
    """Settings that switch a bit on, and off; ``force`` is set in both."""
    return tuple((Setting(register, 1 << bit | force, value << bit | force, **kwargs),)
                 for value in (1, 0))


# Page in register 22. Register 21 of page 2: bit 5 delays RXC, bit 4 TXC; both need a software
# reset. Source: Marvell 88E1510/1518/1512/1514 data sheet (MV-S107146), register 21_2; drivers.
# In-band status is always there (seen by others on a Versa ECP5).
_ON, _OFF = zip(*(_switch(21, bit, select=((22, 2),)) for bit in (4, 5)), strict=True)
MV88E1512 = Phy(
    "Marvell 88E1512", 0x0141_0DD0,
    tx_delay=_ON[0], no_tx_delay=_OFF[0], rx_delay=_ON[1], no_rx_delay=_OFF[1],
    home=((22, 0),), soft_reset=True, in_band=True)


def _mmd(device, register, mask, value):
    """Setting of an MDIO manageable device's register, through 13 and 14 (802.3, 22.2.4.3.11)."""
    return Setting(14, mask, value,
                   select=((13, device), (14, register), (13, 0x4000 | device)))


def _ksz9031_skew(*, clock_shift, clock, data_register, control_shift, data):
    """Skews of a clock (5 bits, 15 is none) and of its data and control (4 bits, 7 is none)."""
    return (_mmd(2, 8, 0x1F << clock_shift, clock << clock_shift),
            _mmd(2, 4, 0xF << control_shift, data << control_shift),
            _mmd(2, data_register, 0xFFFF, data * 0x1111))


_KSZ9031_TX = dict(clock_shift=5, data_register=6, control_shift=0)
_KSZ9031_RX = dict(clock_shift=0, data_register=5, control_shift=4)
# Skews in steps of 60 ps in registers 4, 5, 6, 8 of MMD 2. TXC has no delay of its own, and 1.38 ns
# at most: enough, but without margin, so a delay in the FPGA is better. RXC has 1.2 ns of its own:
# 1.8 ns with 10 steps more, 0 with 15 less and its data 5 later. In-band status is always there
# (3.9.4). MMD 0, registers 4 and 3: fast link pulses every 16 ms, as some partners need (figure
# 7-3). Source: Microchip DS00002117 (KSZ9031RNX data sheet), 3.9, 7.1; drivers.
KSZ9031RNX = Phy(
    "Microchip KSZ9031RNX", 0x0022_1620,
    tx_delay=_ksz9031_skew(clock=31, data=0, **_KSZ9031_TX),
    no_tx_delay=_ksz9031_skew(clock=15, data=7, **_KSZ9031_TX),
    rx_delay=_ksz9031_skew(clock=25, data=7, **_KSZ9031_RX),
    no_rx_delay=_ksz9031_skew(clock=0, data=12, **_KSZ9031_RX),
    always=(_mmd(0, 4, 0xFFFF, 0x0006), _mmd(0, 3, 0xFFFF, 0x1A80)),
    in_band=True)

# Register 0x1C, shadow 3: bit 9 delays TXC; bit 15 writes. Register 0x18, shadow 7 (selected for a
# read by bits 14 to 12): bit 8 delays RXC; bit 15 writes. Source: drivers of the family
# (BCM5461x, B50612E), and others' Colorlight boards for register 0x1C. The identifier comes from
# Broadcom's own sources for a BCM50612. No in-band status was seen by others.
_TX_ON, _TX_OFF = _switch(0x1C, 9, select=((0x1C, 3 << 10),), strobe=0x8000 | 3 << 10)
_RX_ON, _RX_OFF = _switch(0x18, 8, select=((0x18, 7 << 12 | 7),), strobe=0x8000 | 7)
B50612D = Phy(
    "Broadcom B50612D", 0x0362_5E60,
    tx_delay=_TX_ON, no_tx_delay=_TX_OFF, rx_delay=_RX_ON, no_rx_delay=_RX_OFF)

# Extension page 0xA4 (register 31 = 7, register 30 = page), register 28: bit 13 takes the bits
# instead of the straps, bit 12 delays TXC, bit 11 RXC, by 2 ns. Source: drivers.
_ON, _OFF = zip(*(_switch(28, bit, force=1 << 13, select=((31, 7), (30, 0xA4)))
                  for bit in (12, 11)), strict=True)
RTL8211E = Phy(
    "Realtek RTL8211E", 0x001C_C915, mask=0xFFFF_FFFF,
    tx_delay=_ON[0], no_tx_delay=_OFF[0], rx_delay=_ON[1], no_rx_delay=_OFF[1],
    home=((31, 0),))

# Page 0xD08 (register 31): register 17, bit 8 delays TXC; register 21, bit 3 RXC, by 2 ns. Page
# 0xA42 has the standard's registers. Source: drivers.
_TX_ON, _TX_OFF = _switch(17, 8, select=((31, 0xD08),))
_RX_ON, _RX_OFF = _switch(21, 3, select=((31, 0xD08),))
RTL8211F = Phy(
    "Realtek RTL8211F", 0x001C_C916, mask=0xFFFF_FFFF,
    tx_delay=_TX_ON, no_tx_delay=_TX_OFF, rx_delay=_RX_ON, no_rx_delay=_RX_OFF,
    home=((31, 0xA42),))

#: All models. Boards of one name have carried different PHYs.
ALL = (MV88E1512, KSZ9031RNX, B50612D, RTL8211E, RTL8211F)
