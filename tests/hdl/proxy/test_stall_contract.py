"""Contract of dxpu.proxy.stall: who waits without end is found, and nobody else."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dxpu.proxy.stall import StallWatch
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

ROWS = 2
#: Fewer intervals than a proxy waits, which are counted in the same way.
INTERVALS = 2
FEWER = ("INTERVALS = 8", f"INTERVALS = {INTERVALS}")
DEPTH = 16


class StallContract(wiring.Component):
    """One row, whichever.

    It is stalled only if it has waited without progress for :attr:`INTERVALS` whole intervals since
    the wait began or since the last report, and if limits came in more of them. It is reported
    within two intervals more if limits come in each cycle. An interval of n takes n + 1 cycles;
    with 0 no row is ever stalled.
    """

    waiting: In(ROWS)
    progress: In(ROWS)
    limits_received: In(ROWS)
    row: In(range(ROWS))

    def __init__(self, interval, design):
        super().__init__()
        self._interval = interval
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(rows=ROWS)
        m.d.comb += [dut.interval.eq(self._interval), dut.waiting.eq(self.waiting),
                     dut.progress.eq(self.progress), dut.limits_received.eq(self.limits_received)]
        begun, followed = Signal(), Signal.like(self.row)
        m.d.sync += [begun.eq(1), followed.eq(self.row)]
        with m.If(begun):
            m.d.comb += Assume(self.row == followed)
        waiting, progress, limits_received, stalled = (
            signal.bit_select(self.row, 1)
            for signal in (self.waiting, self.progress, self.limits_received, dut.stalled))
        period = self._interval + 1

        waited, peer_alive, attended = Signal(6), Signal(6), Signal(6)
        with m.If(~waiting | progress | stalled):
            # Limits in the cycle of the report count for the next one.
            m.d.sync += [waited.eq(0), peer_alive.eq(stalled & limits_received), attended.eq(0)]
        with m.Else():
            m.d.sync += [waited.eq(waited + 1), peer_alive.eq(peer_alive + limits_received),
                         attended.eq(Mux(limits_received, attended + 1, 0))]
        with m.If(stalled):
            m.d.comb += [
                Assert(waiting & ~progress),
                Assert(waited >= INTERVALS * period),
                Assert(peer_alive > INTERVALS),
            ]
        if self._interval:
            m.d.comb += Assert(attended <= (INTERVALS + 2) * period)
        else:
            m.d.comb += Assert(~stalled)
        self.cover(m, stalled)
        return m

    def cover(self, m, stalled):
        """A place for a ``Cover``."""


class Reached(StallContract):
    """A row is reported a second time."""

    def cover(self, m, stalled):
        again = Signal()
        m.d.sync += again.eq(again | stalled)
        m.d.comb += Cover(stalled & again)


MUTANTS = {
    "progress changes nothing": ("~self.waiting[n] | self.progress[n]", "~self.waiting[n]"),
    "the end of a wait changes nothing": (
        "~self.waiting[n] | self.progress[n]", "self.progress[n]"),
    "progress of any row is that of all": ("self.progress[n]", "self.progress.any()"),
    "no limits need to come": ("with m.Elif(peer_alive):", "with m.Else():"),
    "the last interval may be silent": ("peer_alive & (count == self.INTERVALS)",
                                        "(count == self.INTERVALS)"),
    "limits that came once came in each interval": (
        "m.d.sync += peer_alive.eq(self.limits_received[n])", "pass"),
    "limits of another row count": (
        "with m.Elif(self.limits_received[n]):", "with m.Elif(self.limits_received.any()):"),
    "a stalled row is reported again at once": ("m.d.sync += count.eq(0)", "pass"),
    "an interval too early": ("count == self.INTERVALS)", "count == self.INTERVALS - 1)"),
    "never": ("self.stalled[n].eq(1)", "self.stalled[n].eq(0)"),
    "an interval of 0 counts": (
        "tick.eq((clock == 1) & (self.interval != 0))", "tick.eq(clock <= 1)"),
}


@pytest.mark.parametrize("interval", [0, 1, 2])
def test_a_row_that_waits_without_end_is_stalled_and_no_other(interval):
    prove(StallContract(interval, mutant(StallWatch, FEWER)), depth=DEPTH)


def test_a_row_is_reported_twice():
    prove(Reached(1, mutant(StallWatch, FEWER)), depth=DEPTH, mode="cover")


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_catches(name):
    interval = 0 if "interval of 0" in name else 1
    with pytest.raises(ProofFailed):
        prove(StallContract(interval, mutant(StallWatch, FEWER, MUTANTS[name])), depth=DEPTH)
