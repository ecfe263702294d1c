"""Asynchronous serial line: 8 data bits, least significant first, no parity, one stop bit."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["UartReceiver", "UartTransmitter", "divisor"]


def divisor(clock_hz, baud):
    """Clock cycles per bit.

    Raises
    ValueError
        If no divisor comes within 2 % of ``baud``. The two ends of a line may differ by some 5 %
        over the ten bits of a byte, and the other end has an error of its own.
    """
    cycles = round(clock_hz / baud)
    if cycles < 8 or abs(clock_hz / cycles - baud) > 0.02 * baud:
        raise ValueError(f"A clock of {clock_hz:,.0f} Hz does not make {baud:,} baud: take "
                         f"{clock_hz / 8:,.0f} or less")
    return cycles


class UartReceiver(wiring.Component):
    """Bytes from a serial line.

    A start bit is sampled again in its middle, as is each data bit; a pulse shorter than half a bit
    is ignored. A byte whose stop bit is 0 is dropped, and the receiver waits until the line is 1
    again. So a line held at 0 (break, no cable) counts as one error.

    Latency from the middle of the stop bit to ``o_valid``: 4 cycles, three of them in the
    synchroniser.

    Parameters
    ----------
    divisor : int
        Clock cycles per bit, 8 or more.

    Members
    -------
    rx : In(1)
        Serial line; asynchronous.
    o : Out(8), o_valid : Out(1)
        ``o_valid`` is high for one cycle per byte; the byte cannot be held back.
    stat_framing : Out(1)
        One cycle for each byte without a stop bit.
    """

    def __init__(self, divisor):
        if not isinstance(divisor, int) or divisor < 8:
            raise ValueError(f"divisor must be an integer from 8 on, not {divisor!r}")
        super().__init__({"rx": In(1), "o": Out(8), "o_valid": Out(1), "stat_framing": Out(1)})
        self._divisor = divisor

    def elaborate(self, platform):
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, line, init=1, stages=3)
        wait, left = Signal(range(self._divisor)), Signal(range(10))
        m.d.sync += [self.o_valid.eq(0), self.stat_framing.eq(0), wait.eq(wait - 1)]
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [wait.eq(self._divisor // 2 - 1), left.eq(9)]
                with m.If(~line):
                    m.next = "Bits"
            with m.State("Bits"):
                with m.If(wait == 0):
                    m.d.sync += [wait.eq(self._divisor - 1), left.eq(left - 1)]
                    with m.If(left == 9):
                        with m.If(line):
                            m.next = "Idle"
                    with m.Elif(left != 0):
                        m.d.sync += self.o.eq(Cat(self.o[1:], line))
                    with m.Else():
                        m.d.sync += [self.o_valid.eq(line), self.stat_framing.eq(~line)]
                        m.next = "High"
            with m.State("High"):
                with m.If(line):
                    m.next = "Idle"
        return m


class UartTransmitter(wiring.Component):
    """Bytes to a serial line; takes a byte every ten bit times.

    Parameters
    ----------
    divisor : int
        Clock cycles per bit.

    Members
    -------
    i : In stream of 8 bits
    tx : Out(1)
        Serial line; a register.
    """

    def __init__(self, divisor):
        if not isinstance(divisor, int) or divisor < 1:
            raise ValueError(f"divisor must be a positive integer, not {divisor!r}")
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})
        self._divisor = divisor

    def elaborate(self, platform):
        m = Module()
        bits, left = Signal(9, init=0x1FF), Signal(range(11))
        wait = Signal(range(self._divisor))
        m.d.comb += self.i.ready.eq(left == 0)
        m.d.sync += self.tx.eq(bits[0])
        with m.If(self.i.ready):
            with m.If(self.i.valid):
                m.d.sync += [bits.eq(Cat(C(0, 1), self.i.payload)), left.eq(10),
                             wait.eq(self._divisor - 1)]
        with m.Elif(wait == 0):
            m.d.sync += [bits.eq(Cat(bits[1:], C(1, 1))), left.eq(left - 1),
                         wait.eq(self._divisor - 1)]
        with m.Else():
            m.d.sync += wait.eq(wait - 1)
        return m
