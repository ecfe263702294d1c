"""Watchdog of a device: a probe in the core, and a timer beside it that resets all."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from .csr import RegisterPort

__all__ = ["Watchdog", "WatchdogProbe"]


class WatchdogProbe(wiring.Component):
    """Reads a register periodically, and toggles ``heartbeat`` for each expected value.

    So the heartbeat stops if the clock stops, the register bus hangs or a value is wrong. One
    request is outstanding at a time; the next is sent ``interval`` cycles after a response.

    Parameters
    ----------
    address : int
        Byte address of a register that does not change.
    expected : int
        Value of that register.
    interval : int
        Cycles, at least 1. Between two toggles more than two cycles of the watchdog must pass.

    Members
    -------
    bus : Out :class:`~dxpu.csr.RegisterPort`
        Port to the registers.
    heartbeat : Out(1)
        Toggles while the core works. Driven by a register, so it may cross to another clock domain.
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
    """Resets the device if a heartbeat stops: ``bite`` is 1 for one cycle, and is to reset all
    domains, including that of the watchdog.

    That is ``cycles`` cycles after the last toggle of the heartbeat, or after the last reset of its
    own domain if that was later. If the heartbeat does not return, ``bite`` comes again after as
    many cycles. The clock of the watchdog must not depend on what it watches.

    Latency from a change of ``heartbeat`` or ``enable`` to its effect: two to three cycles.

    Parameters
    ----------
    cycles : int
        Cycles without a toggle until ``bite``, at least 4.

    Members
    -------
    heartbeat : In(1)
        Heartbeat; asynchronous.
    enable : In(1)
        The watchdog works while this is 1; asynchronous. When it rises, the time begins anew.
    bite : Out(1)
        Pulse: reset the device. Driven by a register, so it can be an asynchronous reset.
    count : Out(8)
        Number of bites since power-on, up to 255. It changes in the cycle in which ``bite`` rises
        only, and no reset changes it, so the domains that ``bite`` resets can read it at any time.
    last : Out(1)
        The last reset of this domain was by ``bite``. Valid from three cycles after the beginning
        of the reset on.
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

        # Counts up until its highest bit is set, which needs no comparison.
        bits = (self._cycles - 1).bit_length()
        start = (1 << bits) - self._cycles + 1
        time = Signal(bits + 1, init=start)
        expired = Signal()
        m.d.comb += expired.eq(time[-1])
        m.d.sync += time.eq(time + 1)
        with m.If(~enable | (beat != before) | expired):
            m.d.sync += time.eq(start)

        # These registers outlive a reset, which `bite` causes.
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
