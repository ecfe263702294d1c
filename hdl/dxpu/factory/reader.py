"""Reads the factory record out of an SPI flash.

Ref: docs/reference/boards.md, "Factory record". All serial flashes with 24-bit addresses have the
commands 0xAB (release from power-down) and 0x03 (read).
"""

import math

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC32_ETHERNET

from .record import DEFAULT_MAC, KEY_BYTES, MAGIC, OFFSETS, RECORD_BYTES, VERSION, FactoryState

__all__ = ["FactoryReader"]

#: SPI commands: release from power-down, read.
RELEASE, READ = 0xAB, 0x03
#: Highest clock frequency of the flash, in hertz.
FASTEST = 16e6


class Phase(enum.Enum, shape=3):
    """Phases of a reading. SETTLE lasts 4 byte times, REST 64, both without a clock."""

    SETTLE = 0
    WAKE = 1
    REST = 2
    READ = 3
    OVER = 4


class FactoryReader(wiring.Component):
    """Reads the record after a reset and on request, and shows the result.

    SPI mode 0 at 16 MHz or less. The reader first leaves the flash alone for 2 us or more, which
    ends any earlier access; then releases it from power-down, waits 32 us or more (wake-up may take
    30 us), and reads. A reading takes 80 to 170 us and always ends, as the reader waits for
    nothing: a flash that does not answer reads as all ones, or zeros.

    A reading takes effect whole or not at all. While the checks run, the bytes of address, serial
    number and fingerprint go to a shadow register, and those of the key to the hidden half of the
    key memory. In the cycle in which ``state`` leaves ``READING``, all values change at once: to
    the record, or to the default (``mac`` :data:`~.record.DEFAULT_MAC`, no serial number, no key).
    Until then the former values stay.

    ``cipo`` follows ``sck``, but with the delays of two chips, so it is synchronised. The sample at
    the falling edge of ``sck`` is the level of two cycles earlier, which is at least one period of
    ``sck`` less two cycles after the flash changed the level (32 ns or more).

    Parameters
    ----------
    address : int
        Byte address of the record in the flash; 24 bits.
    hz : number
        Frequency of ``sync``, in hertz.

    Members
    -------
    again : In(1)
        Strobe: read again; ignored during a reading.
    sck, cs, copi : Out(1)
        Pins of the flash; ``cs`` is high while the flash is selected.
    drive : Out(1)
        Output enable of the three pins. While 0, others may use the flash.
    cipo : In(1)
        Data from the flash.
    state : Out(:class:`~.record.FactoryState`)
    mac : Out(48)
        MAC address, first byte uppermost.
    serial, fingerprint : Out(32)
    has_key : Out(1)
    key_address : In(5)
        Byte number in the key.
    key : Out(8)
        Byte ``key_address`` of the key, a cycle later; 0 without a key. For authentication only.
    """

    again: In(1)
    sck: Out(1)
    cs: Out(1)
    copi: Out(1)
    drive: Out(1, init=1)
    cipo: In(1)
    state: Out(FactoryState, init=FactoryState.READING)
    mac: Out(48, init=int.from_bytes(DEFAULT_MAC, "big"))
    serial: Out(32)
    fingerprint: Out(32)
    has_key: Out(1)
    key_address: In(5)
    key: Out(8)

    def __init__(self, *, address, hz):
        if not isinstance(address, int) or not 0 <= address <= (1 << 24) - RECORD_BYTES:
            raise ValueError(f"address must be one of 24 bits with the record behind it, "
                             f"not {address!r}")
        super().__init__()
        self._address = address
        #: Cycles of half a period of `sck`; at least two, so that `cipo` can settle.
        self.half = max(2, math.ceil(hz / (2 * FASTEST)))

    def elaborate(self, platform):
        m = Module()
        cipo = Signal()
        m.submodules.cipo = FFSynchronizer(self.cipo, cipo)
        phase, tick = Signal(Phase), Signal(range(2 * self.half))
        # Byte number in a phase. In the record from 0, after the four bytes of the command.
        place, bit = Signal(6, init=60), Signal(3)
        # After eight bits come eight cycles in which the byte is examined.
        look = Signal()
        sample, last = Signal(), Signal()
        m.d.comb += [sample.eq(~look & (tick == 2 * self.half - 1)),
                     last.eq(look & (bit == 7))]
        with m.If(phase != Phase.OVER):
            m.d.sync += tick.eq(tick + 1)
            with m.If(sample | look):
                m.d.sync += [bit.eq(bit + 1), tick.eq(0)]
                with m.If(bit == 7):
                    m.d.sync += look.eq(~look)
            with m.If(last):
                m.d.sync += place.eq(place + 1)

        over, judged = Signal(), Signal()
        m.d.sync += judged.eq(over)
        with m.Switch(phase):
            with m.Case(Phase.SETTLE):
                with m.If(last & (place == 63)):
                    m.d.sync += phase.eq(Phase.WAKE)
            with m.Case(Phase.WAKE):
                with m.If(last):
                    m.d.sync += [phase.eq(Phase.REST), place.eq(0)]
            with m.Case(Phase.REST):
                with m.If(last & (place == 63)):
                    m.d.sync += [phase.eq(Phase.READ), place.eq(60)]
            with m.Case(Phase.READ):
                with m.If(last & (place == RECORD_BYTES - 1)):
                    m.d.comb += over.eq(1)
                    m.d.sync += phase.eq(Phase.OVER)
            with m.Case(Phase.OVER):
                with m.If(self.again & ~judged):
                    m.d.sync += [phase.eq(Phase.SETTLE), place.eq(60),
                                 self.state.eq(FactoryState.READING)]
        self._pins(m, phase, tick, place, bit, look)

        ours = Signal()
        m.d.comb += ours.eq((phase == Phase.READ) & (place < 60))
        byte = Signal(8)
        with m.If(sample):
            m.d.sync += byte.eq(Cat(cipo, byte))
        with m.Elif(look):
            m.d.sync += byte.eq(byte.rotate_right(1))
        begins = phase == Phase.REST
        first = ours & look & (bit == 0)
        found, keyed = self._bits(m, begins, ours & sample, cipo, place, bit)
        broken = self._crc(m, begins, ours & look, byte, place, bit)
        verdict = Signal(FactoryState)
        m.d.sync += verdict.eq(Mux(broken & (found == FactoryState.VALID),
                                   FactoryState.DAMAGED, found))
        self._results(m, first, judged, byte, place, verdict, keyed)
        return m

    def _pins(self, m, phase, tick, place, bit, look):
        """Drive the pins: `cs` rises a cycle after the phase begins; the pins stay driven for one
        cycle after it ends.
        """
        chosen = (phase == Phase.WAKE) | (phase == Phase.READ)
        command = Const(READ << 24 | self._address, 32)
        says = Mux(phase == Phase.WAKE, Const(RELEASE, 8)[::-1].bit_select(bit, 1),
                   command[::-1].bit_select(Cat(bit, place[:2]), 1))
        m.d.sync += [
            self.cs.eq(chosen), self.copi.eq(says),
            self.drive.eq((phase != Phase.OVER) | self.cs),
            self.sck.eq(chosen & ~look & (tick >= self.half - 1) & (tick != 2 * self.half - 1)),
        ]

    def _bits(self, m, begins, taken, value, place, bit):
        """Examine bits as they come; return the resulting state, without the CRC's part, and
        whether the record has a key.
        """
        ones, zeros, foreign, other, wrong, keyed = (
            Signal(name=name) for name in ("ones", "zeros", "foreign", "other", "wrong", "keyed"))
        header = Const(int.from_bytes(MAGIC + bytes([VERSION]), "big"), 40)[::-1]
        differs = value != header.bit_select(Cat(bit, place[:3]), 1)
        with m.If(taken):
            m.d.sync += [ones.eq(ones & value), zeros.eq(zeros & ~value)]
            with m.Switch(place):
                with m.Case(*range(4)):
                    m.d.sync += foreign.eq(foreign | differs)
                with m.Case(OFFSETS["version"]):
                    m.d.sync += other.eq(other | differs)
                with m.Case(OFFSETS["flags"]):
                    # The last bit is the key flag.
                    m.d.sync += [keyed.eq(value), wrong.eq(wrong | value & (bit != 7))]
                with m.Case(OFFSETS["mac"]):
                    m.d.sync += wrong.eq(wrong | value & (bit == 7))
        with m.If(begins):
            m.d.sync += [ones.eq(1), zeros.eq(1), foreign.eq(0), other.eq(0), wrong.eq(0)]
        state = Signal(FactoryState)
        with m.If(ones | zeros):
            m.d.comb += state.eq(FactoryState.ABSENT)
        with m.Elif(foreign):
            m.d.comb += state.eq(FactoryState.DAMAGED)
        with m.Elif(other):
            m.d.comb += state.eq(FactoryState.VERSION)
        with m.Elif(wrong):
            m.d.comb += state.eq(FactoryState.DAMAGED)
        with m.Else():
            m.d.comb += state.eq(FactoryState.VALID)
        return state, keyed

    def _crc(self, m, begins, looks, byte, place, bit):
        """Compute the CRC bit by bit while each byte rotates; return whether it is wrong.

        The bytes of the CRC itself are compared with the upper eight bits of the register, which
        shift up.
        """
        crc, broken = Signal(32), Signal()
        polynomial = Const(int(f"{CRC32_ETHERNET.polynomial:032b}"[::-1], 2), 32)
        with m.If(looks & (place < OFFSETS["crc"])):
            m.d.sync += crc.eq((crc >> 1) ^ (polynomial & (crc[0] ^ byte[0]).replicate(32)))
        with m.Elif(looks & (bit == 0)):
            m.d.sync += [crc.eq(crc << 8), broken.eq(broken | (byte != ~crc[24:]))]
        with m.If(begins):
            m.d.sync += [crc.eq(0xFFFF_FFFF), broken.eq(0)]
        return broken

    def _results(self, m, first, judged, byte, place, verdict, keyed):
        """Shadow register, key memory and the values shown: from the strobe `judged` on as
        `verdict` says.

        The key begins at byte 16, so its addresses are byte numbers of the record with one bit
        inverted.
        """
        assert OFFSETS["key"] == 16 and OFFSETS["fingerprint"] == 48
        shadow = Signal(112)
        of_key = place[4] ^ place[5]
        with m.If(first & ~of_key & (place >= OFFSETS["mac"]) & (place < OFFSETS["crc"])):
            m.d.sync += shadow.eq(Cat(byte, shadow))

        shown = Signal()
        m.submodules.keys = keys = Memory(shape=8, depth=2 * KEY_BYTES, init=[],
                                          attrs={"ram_style": "distributed"})
        write, read = keys.write_port(), keys.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(Cat(place[:4], ~place[4], ~shown)), write.data.eq(byte),
            write.en.eq(first & of_key),
            read.addr.eq(Cat(self.key_address, shown)),
        ]
        m.d.sync += self.key.eq(read.data & self.has_key.replicate(8))
        good, bad = Signal(), Signal()
        m.d.comb += [good.eq(judged & (verdict == FactoryState.VALID)), bad.eq(judged & ~good)]
        with m.If(judged):
            m.d.sync += self.state.eq(verdict)
        with m.If(good):
            m.d.sync += [Cat(self.fingerprint, self.serial, self.mac).eq(shadow),
                         self.has_key.eq(keyed), shown.eq(~shown)]
        with m.If(bad):
            m.d.sync += [signal.eq(signal.init) for signal in (
                self.mac, self.serial, self.fingerprint, self.has_key)]
