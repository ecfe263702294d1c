"""What resets a device whose core no longer answers: a probe in the core, a watchdog beside it."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from .csr import RegisterPort

__all__ = ["Watchdog", "WatchdogProbe"]


class WatchdogProbe(wiring.Component):
    """Reads a register again and again, and turns ``heartbeat`` over for each right answer.

    So the heartbeat stands still if the clock does, if the register bus hangs, or if what it says
    is wrong. One request at a time; ``interval`` cycles after an answer comes the next one.

    Parameters
    ----------
    address : int
        Byte address of a register that does not change.
    expected : int
        What it reads as.
    interval : int
        Cycles; at least 1. Each turn has to be longer than two cycles of the watchdog.

    Members
    -------
    bus : Out :class:`~dxpu.csr.RegisterPort`
    heartbeat : Out(1)
        Of a register, so that it may cross to another clock.
    """

    bus: Out(RegisterPort())
    heartbeat: Out(1)

    def __init__(self, *, address, expected, interval):
        if not isinstance(interval, int) or interval < 1:
            raise ValueError(f"interval must be a positive integer, not {interval!r}")
        super().__init__()
        self._address, self._expected, self._interval = address, expected, interval

    def elaborate(self, platform):
        m = Module()
        bus, left = self.bus, Signal(range(self._interval))
        m.d.comb += bus.request.p.address.eq(self._address)
        with m.FSM():
            with m.State("Ask"):
                m.d.comb += bus.request.valid.eq(1)
                with m.If(bus.request.ready):
                    m.next = "Listen"
            with m.State("Listen"):
                m.d.comb += bus.response.ready.eq(1)
                m.d.sync += left.eq(self._interval - 1)
                with m.If(bus.response.valid):
                    right = ~bus.response.p.error & (bus.response.p.data == self._expected)
                    m.d.sync += self.heartbeat.eq(self.heartbeat ^ right)
                    m.next = "Rest"
            with m.State("Rest"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.next = "Ask"
        return m


class Watchdog(wiring.Component):
    """Bites if a heartbeat stands still: ``bite``, for one cycle, is to reset the whole device,
    this domain included.

    It bites ``cycles`` cycles after the last turn of the heartbeat, or after the last reset of its
    own domain if there was none since. If the device stays dead it bites again, with so long a
    pause. It runs from a clock that does not depend on what it watches.

    Latency from a turn of ``heartbeat`` or ``enable`` to its effect: two to three cycles.

    Parameters
    ----------
    cycles : int
        At least 4.

    Members
    -------
    heartbeat : In(1)
        Asynchronous; each turn is a sign of life.
    enable : In(1)
        Asynchronous. While it is low nothing bites; when it rises, the wait begins anew.
    bite : Out(1)
        Of a register, so that it may reset without a clock.
    count : Out(8)
        How often it bit since power-on; stays at 255. It changes only in the cycle in which
        ``bite`` rises, and no reset changes it, so whoever ``bite`` resets may read it at any time.
    last : Out(1)
        The last reset of this domain was by ``bite``. It is right three cycles after the reset
        began.
    """

    heartbeat: In(1)
    enable: In(1)
    bite: Out(1)
    count: Out(8)
    last: Out(1)

    def __init__(self, *, cycles):
        if not isinstance(cycles, int) or cycles < 4:
            raise ValueError(f"cycles must be an integer of at least 4, not {cycles!r}")
        super().__init__()
        self._cycles = cycles

    def elaborate(self, platform):
        m = Module()
        beat, before, enable = Signal(), Signal(reset_less=True), Signal()
        m.submodules.heartbeat = FFSynchronizer(self.heartbeat, beat)
        m.submodules.enable = FFSynchronizer(self.enable, enable, init=1)
        m.d.sync += before.eq(beat)

        # Counts up to where its highest bit is set: there is nothing to compare with.
        bits = (self._cycles - 1).bit_length()
        start = (1 << bits) - self._cycles + 1
        time = Signal(bits + 1, init=start)
        expired = Signal()
        m.d.comb += expired.eq(time[-1])
        m.d.sync += time.eq(time + 1)
        with m.If(~enable | (beat != before) | expired):
            m.d.sync += time.eq(start)

        # What outlives a reset. The output `bite` is the one that resets.
        bite, last = Signal(reset_less=True), Signal(reset_less=True)
        count, ours = Signal(8, reset_less=True), Signal(reset_less=True)
        m.d.comb += [self.bite.eq(bite), self.count.eq(count), self.last.eq(last)]
        m.d.sync += bite.eq(expired)
        with m.If(expired):
            m.d.sync += [ours.eq(1), count.eq(count + (count != 0xFF))]

        # A reset may begin between two edges.
        reset, reset_before = Signal(), Signal(init=1, reset_less=True)
        m.submodules.reset = FFSynchronizer(ResetSignal(), reset, init=1)
        m.d.sync += reset_before.eq(reset)
        with m.If(reset & ~reset_before):
            m.d.sync += [last.eq(ours), ours.eq(0)]
        return m
