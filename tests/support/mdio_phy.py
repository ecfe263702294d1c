"""Models of PHYs on MDIO, written from IEEE 802.3 and the data sheets, not from the gateware.

:class:`MdioSlave` is the bit level with its times; :class:`PhyModel` the registers.
"""

from dataclasses import dataclass, field

__all__ = ["BroadcomModel", "KszModel", "MarvellModel", "MdioSlave", "PhyModel", "RealtekEModel",
           "RealtekFModel"]

CONTROL_RESET, CONTROL_RESTART = 0x8000, 0x0200


@dataclass
class PhyModel:
    """Registers of 22.2.4 with autonegotiation (28, 40.5): a PHY of no particular model.

    ``partner``: registers 5 and 10 as set by the link partner. ``cable``: a cable is connected.
    ``gone``: the PHY answers nothing. ``patience``: reads of register 1 until autonegotiation ends.
    """

    identifier: int = 0x1234_5678
    partner: tuple[int, int] = (0x41E1, 0x0C00)
    cable: bool = True
    gone: bool = False
    patience: int = 1
    registers: dict = field(default_factory=dict)
    writes: list = field(default_factory=list)
    resets: int = 0
    negotiations: int = 0

    def __post_init__(self):
        self.hardware_reset()

    def hardware_reset(self):
        self.registers = {0: 0x1140, 4: 0x01E1, 9: 0x0300}
        self.software_reset()
        self.negotiate()

    def software_reset(self):
        """Additional effects of a reset by bit 0.15 in this model; by default none."""

    def negotiate(self):
        self.waiting = self.patience
        self.negotiations += 1
        self.link_failed = True

    @property
    def linked(self):
        offered, gigabit = self.registers[4] & self.partner[0], self.registers[9] << 2
        return (self.cable and self.registers[0] & 0x5C00 == 0x1000 and not self.waiting
                and bool(offered & 0x03E0 or gigabit & self.partner[1] & 0x0C00))

    def unplug(self):
        """Let the link fail for a moment."""
        self.link_failed = True

    def read(self, register):
        if register == 1:
            self.waiting = max(0, self.waiting - 1)
            link, self.link_failed = self.linked and not self.link_failed, False
            return 0x7949 | link << 2 | (self.linked << 5)
        if register in (2, 3):
            return self.identifier >> 16 * (3 - register) & 0xFFFF
        if register in (5, 10):
            return self.partner[register == 10] if self.cable and not self.waiting else 0
        return self.registers.get(register, 0)

    def write(self, register, value):
        self.writes.append((register, value))
        if register == 0:
            self.registers[0] = value & ~(CONTROL_RESET | CONTROL_RESTART)
            if value & CONTROL_RESET:
                self.resets += 1
                self.software_reset()
            if value & (CONTROL_RESET | CONTROL_RESTART):
                self.negotiate()
        elif register not in (1, 2, 3, 5, 10):
            self.registers[register] = value


@dataclass
class MarvellModel(PhyModel):
    """88E1512: pages by register 22; delays in 21_2 take effect after a software reset."""

    identifier: int = 0x0141_0DD1
    acting: int = 0

    def hardware_reset(self):
        self.page, self.paged = 0, {(2, 21): 0x1006}
        super().hardware_reset()

    def software_reset(self):
        self.acting = self.paged[2, 21]

    @property
    def delays_ns(self):
        return 2.0 * (self.acting >> 4 & 1), 2.0 * (self.acting >> 5 & 1)

    def read(self, register):
        if register == 22:
            return self.page
        if self.page:
            return self.paged.get((self.page, register), 0)
        return super().read(register)

    def write(self, register, value):
        if register == 22:
            self.page = value & 0xFF
        elif self.page:
            self.paged[self.page, register] = value
        else:
            super().write(register, value)


@dataclass
class KszModel(PhyModel):
    """KSZ9031RNX: MMD registers through 13 and 14; skews in steps of 60 ps."""

    identifier: int = 0x0022_1622

    def hardware_reset(self):
        self.function = self.device = self.pointer = 0
        self.mmd = {(2, 4): 0x0077, (2, 5): 0x7777, (2, 6): 0x7777, (2, 8): 0x01EF,
                    (0, 3): 0x4000, (0, 4): 0x0003}
        super().hardware_reset()

    @property
    def delays_ns(self):
        """Delays of TXC and RXC; the pads of a direction must have equal skews."""
        control, rxd, txd, clock = (self.mmd[2, n] for n in (4, 5, 6, 8))
        tx = {txd >> 4 * n & 15 for n in range(4)} | {control & 15}
        rx = {rxd >> 4 * n & 15 for n in range(4)} | {control >> 4 & 15}
        (tx,), (rx,) = tx, rx
        return (round(0.06 * ((clock >> 5 & 31) - 15) - 0.06 * (tx - 7), 2),
                round(1.2 + 0.06 * ((clock & 31) - 15) - 0.06 * (rx - 7), 2))

    def read(self, register):
        if register == 14:
            return (self.mmd.get((self.device, self.pointer), 0) if self.function
                    else self.pointer)
        return super().read(register)

    def write(self, register, value):
        if register == 13:
            self.function, self.device = value >> 14, value & 31
            assert self.function in (0, 1), "only data without post increment is modelled"
        elif register == 14:
            if self.function:
                self.mmd[self.device, self.pointer] = value
            else:
                self.pointer = value
        else:
            super().write(register, value)


@dataclass
class BroadcomModel(PhyModel):
    """B50612D: shadows of 0x18 and 0x1C, with write enables in bit 15."""

    identifier: int = 0x0362_5E6A

    def hardware_reset(self):
        self.aux, self.aux_shown = dict.fromkeys(range(8), 0) | {7: 0x7187}, 0
        self.shadow, self.shadow_shown = dict.fromkeys(range(32), 0) | {3: 0x200}, 0
        super().hardware_reset()

    @property
    def delays_ns(self):
        return 2.0 * (self.shadow[3] >> 9 & 1), 2.0 * (self.aux[7] >> 8 & 1)

    def read(self, register):
        if register == 0x18:
            return self.aux[self.aux_shown]
        if register == 0x1C:
            return self.shadow_shown << 10 | self.shadow[self.shadow_shown]
        return super().read(register)

    def write(self, register, value):
        if register == 0x18 and value & 7 == 7:
            self.aux_shown = value >> 12 & 7
            if value & 0x8000:
                self.aux[7] = value & 0x7FF8 | 7
        elif register == 0x1C:
            self.shadow_shown = value >> 10 & 31
            if value & 0x8000:
                self.shadow[self.shadow_shown] = value & 0x3FF
        else:
            assert register != 0x18
            super().write(register, value)


@dataclass
class RealtekEModel(PhyModel):
    """RTL8211E: extension pages behind page 7."""

    identifier: int = 0x001C_C915
    straps: int = 0x0C  # TXC and RXC delays set by the pins, as bits 2 and 3

    def hardware_reset(self):
        self.page = self.extension = 0
        self.paged = {}
        super().hardware_reset()

    @property
    def delays_ns(self):
        value = self.paged.get((0xA4, 28), 0)
        tx, rx = (value >> 12, value >> 11) if value >> 13 & 1 else (
            self.straps >> 2, self.straps >> 3)
        return 2.0 * (tx & 1), 2.0 * (rx & 1)

    def read(self, register):
        if register == 31:
            return self.page
        if self.page == 7:
            return self.paged.get((self.extension, register), 0)
        assert self.page == 0
        return super().read(register)

    def write(self, register, value):
        if register == 31:
            self.page = value
        elif self.page == 7 and register == 30:
            self.extension = value
        elif self.page == 7:
            self.paged[self.extension, register] = value
        else:
            assert self.page == 0
            super().write(register, value)


@dataclass
class RealtekFModel(PhyModel):
    """RTL8211F: pages by register 31; the standard's registers are in 0 and 0xA42."""

    identifier: int = 0x001C_C916

    def hardware_reset(self):
        self.page, self.paged = 0, {(0xD08, 17): 0x0109, (0xD08, 21): 0x0019}
        super().hardware_reset()

    @property
    def delays_ns(self):
        return (2.0 * (self.paged[0xD08, 17] >> 8 & 1), 2.0 * (self.paged[0xD08, 21] >> 3 & 1))

    def read(self, register):
        if register == 31:
            return self.page
        if self.page in (0, 0xA42):
            return super().read(register)
        return self.paged.get((self.page, register), 0)

    def write(self, register, value):
        if register == 31:
            self.page = value
        elif self.page in (0, 0xA42):
            super().write(register, value)
        else:
            self.paged[self.page, register] = value


class MdioSlave:
    """PHYs on MDC and MDIO, bit by bit (22.2.4.5), with the times of 22.2.2.13 and 22.3.4.

    Checked: high and low time of MDC (160 ns), its period (400 ns), set-up and hold of MDIO driven
    by the master (10 ns each), 32 ones of preamble, turnaround, no other driver while a PHY drives.
    A PHY's bit appears ``delay_ns`` after the rising edge of MDC; until then the level is wrong.

    ``phys``: models by address. ``frames``: number of frames with a valid start.
    """

    def __init__(self, dut, phys, *, clock_hz, delay_ns=300):
        self._dut, self.phys = dut, phys
        self._ns = 1e9 / clock_hz
        self._delay = int(delay_ns / self._ns)
        self.frames = 0
        self.shortest_ns = float("inf")

    async def run(self, ctx):
        """Background process of the bus."""
        dut, ns = self._dut, self._ns
        cycle = 0
        rose = fell = changed = -10_000
        mdc, pin = 0, (1, 0)
        self._driven, upcoming, due = None, None, 0
        self._bits, self._ones, self._answer = None, 0, None
        async for *_, new_mdc, o, oe in ctx.tick().sample(dut.mdc, dut.mdio_o, dut.mdio_oe):
            cycle += 1
            if (o if oe else 1, oe) != pin:
                assert (cycle - rose) * ns >= 10, "hold"
                changed, pin = cycle, (o if oe else 1, oe)
            if new_mdc and not mdc:
                assert (cycle - fell) * ns >= 160, "low time"
                assert (cycle - rose) * ns >= 400 - 1e-6, "period"
                if oe:
                    assert (cycle - changed) * ns >= 10, "set-up"
                self.shortest_ns = min(self.shortest_ns, (cycle - rose) * ns)
                rose = cycle
                line = o if oe else 1 if self._driven is None else self._driven
                following = self._bit(line, oe)
                upcoming, due = following, cycle + self._delay
                if following is not None:
                    self._drive(ctx, 1 - following)
            elif mdc and not new_mdc:
                assert (cycle - rose) * ns >= 160, "high time"
                fell = cycle
            if cycle == due:
                self._drive(ctx, upcoming)
            assert not (oe and self._driven is not None), "two drive"
            mdc = new_mdc

    def _drive(self, ctx, value):
        self._driven = value
        ctx.set(self._dut.mdio_i, 1 if value is None else value)

    def _bit(self, line, driven):
        """Take a bit at MDC's rising edge; returns the PHY's next bit, or None."""
        if self._bits is None:
            if line:
                self._ones += driven
                return None
            assert self._ones >= 32 and driven, "preamble"
            self._ones, self._bits = 0, []
        self._bits.append(line)
        n = len(self._bits)
        if n == 14:
            head = int("".join(map(str, self._bits)), 2)
            assert head >> 12 == 0b01 and head >> 10 & 3 in (0b01, 0b10), "start and operation"
            self.frames += 1
            self._reads = head >> 10 & 3 == 0b10
            self._phy, self._register = self.phys.get(head >> 5 & 31), head & 31
            if self._phy is not None and self._phy.gone:
                self._phy = None
            if self._reads and self._phy:
                self._answer = [0] + [int(b) for b in f"{self._phy.read(self._register):016b}"]
        if n > 14 and self._reads:
            assert not driven, "turnaround"
        if n in (15, 16) and not self._reads:
            assert driven and line == (n == 15), "turnaround"
        if n == 32:
            if not self._reads:
                assert driven
                if self._phy:
                    self._phy.write(self._register,
                                    int("".join(map(str, self._bits[16:])), 2))
            self._bits, self._answer = None, None
            return None
        return self._answer.pop(0) if n >= 15 and self._answer else None
