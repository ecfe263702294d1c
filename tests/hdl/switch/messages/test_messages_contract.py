"""Contract of dxpu.switch.messages.messages: PME_TO_Ack goes up when each slot has answered or
gone."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.switch.messages.messages import PmeGatherer, SlotMessage
from dxpu.tlp.types import Routing
from tests.support.formal import ProofFailed, prove

PORTS = 2


class GatherContract(wiring.Component):
    """The answer goes up after the last slot that must answer has answered or gone, and soon.

    Followed is one slot, whichever: it is owing from a start in whose broadcast it was until its
    message is heard, or its link is seen inactive. While it owes, no answer is made, and one that
    was made before may still be taken. If nobody owes, the answer is offered within two cycles of
    the start. There are no more answers than starts. An answer that is offered stays.
    """

    start: In(1)
    message: In(SlotMessage)
    link_active: In(PORTS)
    upstream_id: In(13)
    ready: In(1)
    slot: In(range(PORTS))

    def __init__(self, design=PmeGatherer):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(PORTS)
        before = Signal(PORTS)
        m.d.sync += before.eq(self.link_active)
        for n, life in enumerate(dut.lives):
            counted = Signal.like(life)
            m.d.comb += life.eq(counted)
            with m.If(before[n] & ~self.link_active[n]):
                m.d.sync += counted.eq(counted + 1)
        m.d.comb += [
            dut.start.eq(self.start), dut.message.eq(self.message),
            dut.link_active.eq(self.link_active), dut.upstream_id.eq(self.upstream_id),
            dut.o.ready.eq(self.ready),
        ]
        heard = [self.message.strobe & (self.message.port == n) & (self.message.code == 0x1B)
                 & (self.message.life == dut.lives[n]) for n in range(PORTS)]
        owing = Signal(PORTS)
        m.d.sync += owing.eq(Mux(self.start, self.link_active,
                                 owing & self.link_active & ~Cat(heard)))
        followed = Signal.like(self.slot)
        begun = Signal()
        m.d.sync += [begun.eq(1), followed.eq(self.slot)]
        with m.If(begun):
            m.d.comb += Assume(self.slot == followed)

        offered, taken, sender = Signal(), Signal(), Signal(16)
        m.d.sync += [offered.eq(dut.o.valid), taken.eq(self.ready),
                     sender.eq(dut.o.p.requester_id)]
        fresh = dut.o.valid & (~offered | taken)
        owed = Signal()
        m.d.sync += owed.eq(owing.bit_select(self.slot, 1))
        with m.If(fresh):
            m.d.comb += Assert(~owed)
        with m.If(offered & ~taken):
            m.d.comb += [Assert(dut.o.valid), Assert(dut.o.p.requester_id == sender)]
        m.d.comb += [Assert(dut.o.p.code == 0x1B), Assert(dut.o.p.routing == Routing.GATHER)]

        # Answers there may be, and one that must come.
        due, patience = Signal(4), Signal(2)
        m.d.sync += due.eq(due + self.start - (dut.o.valid & self.ready))
        with m.If(due == 0):
            m.d.comb += Assert(~dut.o.valid)
        with m.If(due == 15):
            m.d.comb += Assume(~self.start)
        unanswered = Signal()
        with m.If(self.start):
            m.d.sync += unanswered.eq(1)
        with m.Elif(fresh):
            m.d.sync += unanswered.eq(0)
        with m.If(unanswered & ~owing.any() & ~dut.o.valid & ~self.start):
            m.d.sync += patience.eq(patience + 1)
        with m.Else():
            m.d.sync += patience.eq(0)
        m.d.comb += Assert(patience < 2)
        return m


class Reached(GatherContract):
    """Two slots answer one after the other, and then the answer is taken."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        dut, asked, count = m.submodules.dut, Signal(), Signal(2)
        m.d.sync += [asked.eq(asked | self.start),
                     count.eq(count + (self.message.strobe & (self.message.port == count)))]
        m.d.comb += [Assume(self.link_active.all()),
                     Cover(dut.o.valid & self.ready & asked & (count == 2))]
        return m


class AnyAnswer(PmeGatherer):
    """Mutant: one answer is enough."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = PmeGatherer(1)
        m.d.comb += [
            inner.start.eq(self.start), inner.message.eq(self.message),
            inner.message.port.eq(0), inner.link_active.eq(self.link_active.all()),
            inner.upstream_id.eq(self.upstream_id), inner.lives[0].eq(self.lives[0]),
            self.o.payload.eq(inner.o.payload), self.o.valid.eq(inner.o.valid),
            inner.o.ready.eq(self.o.ready),
        ]
        return m


class Changed(PmeGatherer):
    """Mutants: one input is changed on its way in."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = PmeGatherer(PORTS)
        m.d.comb += [
            inner.start.eq(self.start), inner.message.eq(self.message),
            inner.link_active.eq(self.link_active), inner.upstream_id.eq(self.upstream_id),
            *(a.eq(b) for a, b in zip(inner.lives, self.lives, strict=True)),
            self.o.payload.eq(inner.o.payload), self.o.valid.eq(inner.o.valid),
            inner.o.ready.eq(self.o.ready),
        ]
        self.change(m, inner)
        return m


class GoneIsNotDone(Changed):
    """Mutant: waits for a slot whose link is gone."""

    def change(self, m, inner):
        seen = Signal(PORTS)
        with m.If(self.start):
            m.d.sync += seen.eq(self.link_active)
        m.d.comb += inner.link_active.eq(self.link_active | seen)


class OldLife(Changed):
    """Mutant: hears messages of the life before."""

    def change(self, m, inner):
        m.d.comb += inner.lives[0].eq(self.message.life)


class Hasty(Changed):
    """Mutant: the answer goes with the identifier of the moment."""

    def change(self, m, inner):
        m.d.comb += self.o.p.requester_id.eq(Cat(C(0, 3), self.upstream_id))


def test_pme_gathering():
    prove(GatherContract(), depth=14)


def test_pme_gathering_is_not_vacuous():
    prove(Reached(), depth=10, mode="cover")


@pytest.mark.parametrize("mutant", [AnyAnswer, GoneIsNotDone, OldLife, Hasty])
def test_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(GatherContract(mutant), depth=10)
