"""Contract of dxpu.management.agent: nothing acts without the right tag, whatever the cipher says,
whatever the memory holds, wherever the program is."""

from collections import Counter

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu.csr import connect_ports
from dxpu.management import agent, protocol
from dxpu.management.agent import ManagementAgent
from dxpu.management.format import Kind
from dxpu.management.operations import Directory
from dxpu.management.program import Count, Do, Op
from dxpu.management.store import Bank
from dxpu.management.verdict import Verdict
from tests.hdl.management.test_unit import Bench
from tests.hdl.management.test_unit_mutants import conversation
from tests.support.formal import NotInductive, prove
from tests.support.mutate import mutant

#: Registers of the node of the proof.
REGISTERS = {0x10: True, 0x14: True, 0x18: False}
#: Words of a tag.
WORDS = 4
#: Places of the store: what the cipher says that the tag must be; tag of a manager's last request.
SEALED, LAST_TAG = Bank.GLOBAL.value << 7 | 24, 20
DEPTH = 14


class Witness(wiring.Component):
    """Looks at an agent, and finds out by itself what it may do.

    The *right tag*: since the frame was offered, the agent has read each word of the frame's tag,
    right after that the word of the store in which the cipher's word was put, and they were equal.
    The cipher has said that word of this frame, and nothing has overwritten it. The *last tag*: the
    same, with the words of the manager's record. ``stored``: the store gives back what was put
    where the cipher's words are.
    """

    def __init__(self, dut):
        self._dut = dut
        super().__init__({"right": Out(1), "last": Out(1), "stored": Out(1)})
        self.said, self.found, self.again = [
            Signal(WORDS, name=name) for name in ("said", "found", "again")]

    def elaborate(self, platform):
        m = Module()
        dut, ccm = self._dut, self._dut._ccm
        ends = dut.came.valid & dut.came.ready
        stored = [Signal(32, name=f"stored{n}") for n in range(WORDS)]
        # The address before the newest one that was read, its word, and the newest one.
        before, was, at, expects, known = (
            Signal(10), Signal(32), Signal(10), Signal(32), Signal())
        with m.If(dut.read):
            m.d.sync += [before.eq(at), was.eq(dut.word), at.eq(dut.read_at), known.eq(0)]
        with m.If(dut.outgoing.valid):  # beats are read
            m.d.sync += known.eq(0)
        came = Cat(dut._of.second, C(Bank.CAME0.value >> 1, 2))
        for n in range(WORDS):
            with m.If(dut.read & (dut.read_at == SEALED + n)):
                m.d.sync += [expects.eq(stored[n]), known.eq(1)]
            with m.If(dut.write & dut.write_ready & (dut.write_at == SEALED + n)):
                m.d.sync += [
                    stored[n].eq(dut.write_word), self.found[n].eq(0),
                    self.said[n].eq(ccm.tag_o.valid & ccm.job.payload.decrypt
                                    & (dut.write_word == ccm.tag_o.payload)),
                ]
            of_frame = before == Cat((protocol.BODY + dut._size + n)[:7], came)
            with m.If(of_frame & (was == dut.word)):
                with m.If((at == SEALED + n) & ~dut.write & self.said.all()):
                    m.d.sync += self.found[n].eq(1)
                with m.If(at == Cat(C(LAST_TAG + n, 7), dut._manager, C(0, 1))):
                    m.d.sync += self.again[n].eq(1)
        with m.If(ends):
            m.d.sync += [self.said.eq(0), self.found.eq(0), self.again.eq(0)]
        m.d.comb += [self.stored.eq(~known | (dut.word == expects)),
                     self.right.eq(self.found.all()), self.last.eq(self.again.all())]
        return m


class VerdictContract(wiring.Component):
    """An agent with its real program, cipher mode, operations; AES, keys, store and lines are free.

    No register is read or written, no event is taken as heard, no association is opened, nobody
    becomes the one who hears of events, and nothing but the time of the last question changes in a
    record, without the right tag. No answer is sent without the right one or the last one.
    """

    def __init__(self, design=ManagementAgent):
        self.dut = design(lambda: Directory(REGISTERS, 0x10))
        super().__init__({name: member for name, member in self.dut.signature.members.items()
                          if name != "identity"})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.witness = witness = Witness(dut)
        for name, member in self.signature.members.items():
            ours, theirs = getattr(self, name), getattr(dut, name)
            if name == "bus":
                connect_ports(m, theirs, flipped(ours))
            elif member.is_signature:
                connect(m, flipped(ours), theirs)
            elif member.flow is In:
                m.d.comb += theirs.eq(ours)
        self._surround(m, dut, witness)
        right = witness.right

        def before(value):
            kept = Signal.like(value)
            m.d.sync += kept.eq(value)
            return kept

        begun = before(C(1, 1))
        record = dut.write & ~dut.write_at[-1] & (dut.write_at[:7] != protocol.ASKED)
        m.d.comb += [
            Assert(~dut.bus.request.valid | right),
            Assert(~dut.event.ready | right),
            Assert(~(record & dut.ready) | right),
            Assert(~(dut.outgoing.valid & (dut._says == Kind.ANSWER)) | right | witness.last),
        ]
        opened, written, writer = before(dut._open), before(dut._written), before(dut._writer)
        with m.If(begun & ~before(right)):
            m.d.comb += [Assert((dut._open & ~opened) == 0), Assert(~(dut._written & ~written)),
                         Assert(dut._writer == writer)]
        # What makes the induction go through.
        verdict, does = dut._verdict, dut._does
        m.d.comb += [
            Assert((dut._number == 0) | Mux(does.count == Count.SIZE, dut._number < dut._size,
                                            dut._number <= does.more)),
            Assert(~dut._wanted | (does.count == Count.FIXED) | (dut._size != 0)),
            Assert(~dut._runs | (does.op == Op.DO) & (does.argument == Do.RUN)),
            Assert((verdict._there & ~witness.said) == 0),
            Assert((verdict._right & ~witness.found) == 0),
            Assert((verdict._again & ~witness.again) == 0),
        ]
        return m

    def _surround(self, m, dut, witness):
        """Streams are streams, and words stay until others are read, or beats of a frame."""
        offered, came = Signal(), Signal.like(dut.came.payload)
        read, word, begun = Signal(), Signal(32), Signal()
        m.d.sync += [offered.eq(dut.came.valid & ~dut.came.ready), came.eq(dut.came.payload),
                     read.eq(dut.read | dut.outgoing.valid), word.eq(dut.word), begun.eq(1)]
        m.d.comb += [
            Assume(~offered | dut.came.valid & (dut.came.payload.as_value() == came.as_value())),
            Assume(witness.stored),  # of all other places the store gives anything
            Assume(read | ~begun | (dut.word == word)),
        ]


#: Gates of the agent that are left out.
GATES = {
    "registers do not wait for the tag": (
        "operations.bus.request.valid & authentic", "operations.bus.request.valid"),
    "an association opens without the tag": (
        "with m.If(self._verdict.authentic):", "with m.If(1):"),
    "an event is heard without the tag": ("heard & self._verdict.authentic", "heard"),
    "records change without the tag": ("stores & ~(guarded & ~verdict.authentic)", "stores"),
    "any record may change at the place of a time": ("(does.to == Part.RECORD) & (does.b != ASKED)",
                                                     "(does.to == Part.RECORD) & (does.b == 8)"),
    "answers do not wait for the tag": ("~(verdict.authentic | verdict.repeated)", "0"),
    "events go to who has written without the tag": (
        "operations.wrote & self._verdict.authentic", "operations.wrote"),
}
#: Wrong ways to find the verdict.
VERDICTS = {
    "the tag of the frame before": ("self.forgets | self.begins", "self.begins"),
    "compared before the cipher has said it": ("self.alike & there.all()", "self.alike"),
    "one word is enough": ("right.all()", "right.any()"),
    "a tag that is another one": ("self.alike & there.all()", "there.all()"),
    "the tag of an answer": ("eq(self.decrypts)", "eq(1)"),
    "the words of the last tag": ("self.compared & ~self.kept", "self.compared"),
    "another tag than the last one": ("eq(self.alike)", "eq(1)"),
}


def prove_it(design=ManagementAgent):
    prove(VerdictContract(design), depth=DEPTH, mode="prove", flat=True)


def test_nothing_acts_without_the_right_tag():
    prove_it()


@pytest.mark.parametrize("step", ["tag", "heard", "stale", "done"])
def test_it_does_not_without_a_step_of_the_program(step, monkeypatch):
    """The gates hold what the program would let through."""
    made = protocol.protocol()
    place = next(n for n, (_, target) in enumerate(made._steps) if target == step)
    made._steps[place] = ({"op": Op.JUMP, "last": 1, "argument": 0}, None)
    monkeypatch.setattr(agent, "protocol", lambda: made)
    prove_it()


@pytest.mark.parametrize("name", GATES)
def test_a_missing_gate_is_found(name):
    with pytest.raises(NotInductive):
        prove_it(mutant(ManagementAgent, GATES[name]))


@pytest.mark.long
@pytest.mark.parametrize("name", VERDICTS)
def test_a_wrong_verdict_is_found(name, monkeypatch):
    monkeypatch.setattr(agent, "Verdict", mutant(Verdict, VERDICTS[name]))
    with pytest.raises(NotInductive):
        prove_it()


class WatchedBench(Bench):
    """A bench whose unit has a witness."""

    def module(self):
        m = super().module()
        m.submodules.witness = self.witness = Witness(self.dut._agent)
        return m


def test_who_has_the_key_reaches_what_is_held_back():
    """In a conversation the witness sees the right tag before each thing that needs it, and all of
    these things happen; and an answer that is repeated for the last tag."""
    bench, seen = WatchedBench(node=0x105), Counter()

    async def watch(ctx):
        dut, was = bench.dut._agent, 0
        bus, out = dut.bus.request, dut.outgoing
        async for (_, _, stored, right, last, access, write, said, says, heard,
                   now) in ctx.tick().sample(
                bench.witness.stored, bench.witness.right, bench.witness.last,
                bus.valid & bus.ready, bus.p.write,
                out.valid & out.ready, dut._says, dut.event.ready, dut._open):
            assert stored
            seen["write" if write else "read", right] += access
            seen["answer", right, last] += said and says == Kind.ANSWER
            seen["heard", right] += heard
            seen["opened", right] += now & ~was != 0
            was = now

    async def process(ctx):
        await conversation(ctx, bench)

    bench.run(process, watch)
    assert {what for what, count in seen.items() if count} == {
        ("write", 1), ("read", 1), ("answer", 1, 0), ("answer", 0, 1), ("heard", 1), ("opened", 1)}
