"""The agent that opens keyed sessions: a machine that runs a program.

Ref: docs/reference/keyed-sessions.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import Counted
from dxpu.crypto.cmac import MacUse
from dxpu.fabric.wire.format import VERSION
from dxpu.fabric.wire.frame_fields import wire
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.memory import DisjointMemory

from .message_words import MessageWords
from .program import Check, If, Instruction, Label, Op, Set, Source, State
from .protocol import COUNTERS, protocol
from .types import Call, Called, KeyWord, Say, Tell, Told

__all__ = ["OpeningAgent"]

#: Words of a session's record, and of a key.
RECORD, KEY = 64, 8
#: Bits of the times in a record.
TIME_BITS = 15
_LABELS = {Label.DXF: b"DX", Label.PROOF: b"F1", Label.KNOCK: b"FK", Label.NUMBERS: b"FS"}
_TYPES = {Set.HELLO: FrameType.HELLO, Set.HELLO_ACK: FrameType.HELLO_ACK,
          Set.HELLO_DONE: FrameType.HELLO_DONE}


class OpeningAgent(wiring.Component):
    """Judges the opening frames of keyed sessions that come, and makes those that are sent.

    It does one thing after the other: a call, or a key. While it does it none is taken, so a frame
    that comes meanwhile can only be dropped. A HELLO with a wrong knock takes 61 cycles, one that
    is answered 1217, most of them for two proofs; a HELLO_DONE 363, if the cipher is shared.
    Comparisons of proofs take as long whatever they find.

    What is known of a session is a record of 64 words in block RAM: what was offered, the proofs,
    the knocks under both keys. Another one has the keys, two slots for each peer; nobody can read
    them. What the records say of sessions in which nothing is offered has no effect, so a reset
    need not clear them; after a reset there are no keys.

    Times are told modulo 2^15 ticks. So a candidate that nobody uses cannot be replaced for
    ``young`` ticks each time that these have passed.

    Parameters
    ----------
    peers, streams : int
        Sessions: one for each stream of each peer. The latter a power of two.
    young, said : int
        For so many ticks a candidate is not replaced, and not offered again.

    Members
    -------
    tick : 1
        Strobe: time goes on; each 64 cycles, as ``young`` and ``said`` are 250 and 50 us by
        default.
    opens : 1
        This end opens sessions, and does not answer.
    node : 12
    own_fields : array of 16
        The fields of our HELLO or HELLO_ACK from the role on, the first byte in the lowest bits.
    call : stream of :class:`~.types.Call`
    body_at, came_word : 5 out, 16 in
        That word of the body that came, in the same cycle. It stays until the next call is taken.
    new_key : stream of :class:`~.types.KeyWord`
        Eight words, one after the other, when ``node`` is as it stays. The next key has no effect
        on sessions under way; an only one ends what was offered under those before it.
    finding : stream of :class:`~.types.Tell`
    fresh_tag : 16
        With ``finding`` taken: a tag that this end offers from now on, if it says WANTS; 0: no.
    opening_frame : stream of :class:`~.types.Say`
    body_word, body_put, body_ready : 16, 1, 1 in
        Word ``body_at`` of the body of the next ``opening_frame``, without its CRC-32C, and a
        strobe, only while it may be written.
    random : stream of 32
    failed : 1
        No random word comes any more.
    cmac : :class:`~dxpu.crypto.cmac.MacUse`
    with_key, with_two : ``peers``
        There is a key for the peer, or two.
    stat_knock, stat_proof, stat_stale : 1
        Pulses: a frame is dropped.
    """

    def __init__(self, *, peers, streams, young=489, said=98):
        exact_log2(streams)
        self._peers, self._streams = peers, streams
        self._young, self._said = young, said
        super().__init__({
            "tick": In(1),
            "opens": In(1),
            "node": In(12),
            "own_fields": In(data.ArrayLayout(16, 10)),
            "call": In(stream.Signature(Call)),
            "body_at": Out(5),
            "came_word": In(16),
            "new_key": In(stream.Signature(KeyWord)),
            "finding": Out(stream.Signature(Tell)),
            "fresh_tag": In(16),
            "opening_frame": Out(stream.Signature(Say)),
            "body_word": Out(16),
            "body_put": Out(1),
            "body_ready": In(1),
            "random": In(stream.Signature(32)),
            "failed": In(1),
            "cmac": Out(MacUse()),
            "with_key": Out(peers),
            "with_two": Out(peers),
            "stat_knock": Out(Counted("HELLOs without the knock of a key.")),
            "stat_proof": Out(Counted("HELLO_ACKs and HELLO_DONEs with a wrong proof.")),
            "stat_stale": Out(Counted(
                "Opening frames of keyed sessions that fit nothing, and those for which there was "
                "no tag or no random number.")),
        })
        #: The instruction as the program says it, and a cycle later: an instruction reads its word
        #: by the one, and acts by the other.
        self._reads, self._does = Signal(Instruction), Signal(Instruction)
        #: The present word's number, its place, the word; it is the last one of the instruction.
        self._number, self._place, self._word = Signal(4), Signal(5), Signal(16)
        self._last = Signal()
        #: The present word is there; strobe: and what is done with it can be.
        self._wanted, self._acts = Signal(), Signal()
        #: What it is about.
        self._session, self._peer = Signal(6), Signal(12)
        self._tag, self._offered, self._confirms = Signal(16), Signal(16), Signal()
        self._boot, self._path = Signal(16), Signal(4)
        #: Of the peer whose keys are looked at: its number, which slots have one, the current slot.
        self._key_peer, self._filled, self._current = Signal(range(peers)), Signal(2), Signal()
        #: The key that comes is the next one.
        self._following = Signal()
        #: Slot of the key that is used; type of the frame that is authenticated.
        self._slot, self._type = Signal(), Signal(4)
        self._differs, self._refused = Signal(), Signal()
        self._kept = Array(Signal(16, name=f"kept{n}") for n in range(3))
        self._theirs = Signal(16)
        self._now = Signal(TIME_BITS)

    def elaborate(self, platform):
        m = Module()
        with m.If(self.tick):
            m.d.sync += self._now.eq(self._now + 1)
        self._keep_keys(m)
        record = self._remember(m)
        word, there = self._take(m, record)
        self._compare(m, word, record)
        ready = self._give(m, word)
        self._step(m, record, there, ready)
        return m

    def _remember(self, m):
        """The records; returns the word that was read. And the key that is used."""
        does, reads, number = self._does, self._reads, self._number
        m.submodules.records = records = DisjointMemory(
            shape=16, depth=self._peers * self._streams * RECORD, init=[])
        m.submodules.keys = keys = DisjointMemory(
            shape=16, depth=self._peers * 2 * KEY, init=[])
        # Low and high halves of columns.
        used = [Memory(shape=16, depth=KEY // 2, init=[]) for _ in range(2)]
        m.submodules.used_low, m.submodules.used_high = used
        read, write = records.read_port(), records.write_port()
        key_read, key_write = keys.read_port(), keys.write_port()
        stores, is_key = does.op == Op.STORE, does.source == Source.KEY
        m.d.comb += [
            read.addr.eq(Cat((reads.b + number)[:6], self._session)), read.en.eq(~self._acts),
            key_read.addr.eq(Cat(number[:3], self._slot, self._key_peer)),
            key_read.en.eq(~self._acts),
        ]
        for port, where, puts in ((write, read.addr, stores & ~is_key),
                                  (key_write, key_read.addr, stores & is_key)):
            m.d.comb += [port.addr.eq(where), port.data.eq(self._word),
                         port.en.eq(self._acts & puts)]
        for n, half in enumerate(used):
            put, get = half.write_port(), half.read_port(domain="comb")
            m.d.comb += [
                put.addr.eq(number[1:]), put.data.eq(key_read.data),
                put.en.eq(self._acts & (does.op == Op.SET) & (does.argument == Set.KEY)
                          & (number[0] == n)),
                get.addr.eq(self.cmac.column),
                self.cmac.key_column.word_select(n, 16).eq(get.data),
            ]
        return read.data

    def _keep_keys(self, m):
        """Which slots have a key, and which one is the current one, of each peer."""
        filled, current = Array(Signal(2, name=f"filled{n}") for n in range(self._peers)), Array(
            Signal(name=f"current{n}") for n in range(self._peers))
        peer, following = self._key_peer, self._following
        m.d.comb += [
            self._filled.eq(filled[peer]), self._current.eq(current[peer]),
            self.with_key.eq(Cat(slots.any() for slots in filled)),
            self.with_two.eq(Cat(slots.all() for slots in filled)),
        ]
        sets = self._acts & (self._does.op == Op.SET)
        slot, mine = self._slot, 1 << self._slot
        with m.If(sets):
            with m.Switch(self._does.argument):
                with m.Case(Set.VACANT):
                    other = self._current ^ (following & self._filled.any())
                    m.d.sync += [slot.eq(other), filled[peer].eq(self._filled & ~(1 << other))]
                with m.Case(Set.FILLED):
                    m.d.sync += filled[peer].eq(Mux(following, self._filled, 0) | mine)
                    with m.If(~following | ~self._filled.any()):
                        m.d.sync += current[peer].eq(slot)
                with m.Case(Set.CURRENT):
                    with m.If((self._filled & mine).any() & (slot != self._current)):
                        m.d.sync += [filled[peer].eq(mine), current[peer].eq(slot)]

    def _take(self, m, record):
        """The word from its source, and whether it is there."""
        does, number, word, there = self._does, self._number, self._word, Signal()
        m.d.comb += [there.eq(1), self.body_at.eq(self._place)]
        # Two words in one of another stream.
        for source, of in ((self.random, Source.RANDOM), (self.cmac.o, Source.RESULT)):
            m.d.comb += source.ready.eq(self._acts & (does.source == of) & number[0])
        with m.Switch(does.source):
            with m.Case(Source.FRAME):
                m.d.comb += word.eq(self.came_word)
            with m.Case(Source.RECORD):
                m.d.comb += word.eq(record)
            with m.Case(Source.OWN):
                m.d.comb += word.eq(Array(self.own_fields)[number])
            with m.Case(Source.RANDOM):
                m.d.comb += [word.eq(self.random.payload.word_select(number[0], 16)),
                             there.eq(self.random.valid)]
            with m.Case(Source.RESULT):
                m.d.comb += [word.eq(self.cmac.o.payload.word_select(number[0], 16)),
                             there.eq(self.cmac.o.valid)]
            with m.Case(Source.KEY):
                m.d.comb += [word.eq(self.new_key.payload.data), there.eq(self.new_key.valid),
                             self.new_key.ready.eq(self._acts)]
            with m.Case(Source.LABEL):
                m.d.comb += word.eq(self._label(self._place[:3]))
            with m.Case(Source.STATE):
                states = {
                    State.ZERO: Const(0, 16), State.OFFER: wire(self._offered, 2),
                    State.TAG: wire(self._tag, 2), State.TIME: Cat(self._now, self._slot)}
                m.d.comb += word.eq(Array(states[state] for state in State)[does.a[:2]])
        return word, there

    def _label(self, which):
        """A word of the beginning of a message."""
        out = (self._type == FrameType.HELLO_ACK) ^ self.opens
        to, of = Mux(out, self._peer, self.node), Mux(out, self.node, self._peer)
        nodes = wire(Cat(of, to), 3)
        stream_number = (self._session & (self._streams - 1))[:4]
        return Array([
            *(Const(int.from_bytes(text, "little"), 16) for text in _LABELS.values()),
            Cat(self._type, Const(VERSION, 4)), nodes[:16], nodes[16:],
            Cat(Const(0, 8), stream_number),
        ])[which]

    def _compare(self, m, word, record):
        """Whether something is not as it should be."""
        does, wrong, checks, was = self._does, Signal(), Signal(), Signal()
        wrongs = {Check.ZERO: word != 0, Check.SOME: word == 0,
                  Check.KEPT: word != self._kept[self._number[0]]}
        m.d.comb += wrong.eq(Mux(does.op == Op.COMPARE, word != record,
                                 Array(wrongs[check] for check in Check)[does.argument[:2]]))
        # A cycle later, as nobody asks so soon.
        m.d.sync += [was.eq(wrong),
                     checks.eq(self._acts & ((does.op == Op.COMPARE) | (does.op == Op.CHECK)))]
        with m.If(checks):
            m.d.sync += self._differs.eq(self._differs | was)
        with m.If(self._acts):
            with m.If((does.op == Op.JUMP) & (does.argument == If.DIFFERS)):
                m.d.sync += self._differs.eq(0)
            with m.If((does.op == Op.KEEP) & (self.body_at < len(self._kept))):
                m.d.sync += self._kept[self.body_at[:2]].eq(word)
            with m.If(does.op == Op.KEEP_TAG):
                m.d.sync += self._theirs.eq(wire(word, 2))

    def _give(self, m, word):
        """The word to where it is wanted; returns whether it is taken there."""
        does = self._does
        last, ready, wanted = self._last, Signal(), self._wanted
        m.submodules.words = words = MessageWords()
        part, frame, finding = (s.payload for s in (words.i, self.opening_frame, self.finding))
        wiring.connect(m, words.o, wiring.flipped(self.cmac.i))
        m.d.comb += [
            self.body_word.eq(word), self.body_put.eq(self._acts & (does.op == Op.BODY)),
            part.data.eq(word), part.last.eq(does.last & last),
            frame.type.eq(does.argument), frame.session.eq(self._session),
            frame.path.eq(self._path), finding.path.eq(self._path), finding.boot.eq(self._boot),
            frame.tag.eq(Mux(does.argument == FrameType.HELLO, 0, self._theirs)),
            finding.kind.eq(does.argument), finding.session.eq(self._session),
            finding.offered.eq(Mux(does.argument == Told.REPEATS, 0, self._offered)),
            finding.theirs.eq(self._theirs),
        ]
        numbers = wire(Cat(self._kept), 6)
        opener, answerer = numbers[24:], numbers[:24]
        m.d.comb += [
            finding.seq.eq(Mux(self.opens, opener, answerer)),
            finding.next.eq(Mux(self.opens, answerer, opener)),
            ready.eq(1),
        ]
        with m.Switch(does.op):
            with m.Case(Op.MAC):
                m.d.comb += [words.i.valid.eq(wanted), ready.eq(words.i.ready)]
            with m.Case(Op.BODY):
                m.d.comb += ready.eq(self.body_ready)
            with m.Case(Op.SAY):
                m.d.comb += [self.opening_frame.valid.eq(wanted),
                             ready.eq(self.opening_frame.ready)]
            with m.Case(Op.TELL):
                m.d.comb += [self.finding.valid.eq(wanted), ready.eq(self.finding.ready)]
        return ready

    def _happens(self, m, record):
        """Whether a jump is made."""
        does, holds = self._does, Signal()
        offered = wire(self._offered, 2)
        # The subtraction and the comparison are most of a cycle: there is a state for them.
        age = (self._now - record[:TIME_BITS])[:TIME_BITS]
        young, said = Signal(), Signal()
        m.d.sync += [young.eq(age < self._young), said.eq(age < self._said)]
        conditions = {
            If.ALWAYS: Const(1, 1),
            If.DIFFERS: self._differs,
            If.KEY: self._filled.bit_select(self._slot, 1),
            If.SLOT1: self._slot,
            If.OFFERED: (record == offered) & (offered != 0),
            If.YOUNG: young,
            If.SAID: said,
            If.SAME: record[TIME_BITS] == self._slot,
            If.CONFIRMS: self._confirms,
            If.DRY: ~self.random.valid,
            If.REFUSED: self._refused,
            If.MORE: (self._session & (self._streams - 1)) != 0,
        }
        m.d.comb += holds.eq(Array(conditions[c] for c in If)[does.argument])
        return holds ^ does.unless

    def _step(self, m, record, there, ready):
        """Runs the program."""
        does, number, acts = self._does, self._number, self._acts
        program = protocol().assembled()
        m.submodules.program = rom = Memory(shape=Instruction, depth=len(program), init=program)
        fetch = rom.read_port()
        place, back = Signal(range(len(program))), Signal(range(len(program)))
        reads = self._reads
        m.d.comb += [fetch.addr.eq(place), reads.eq(fetch.data), fetch.en.eq(1)]
        # Behind "Read" these are of the instruction that is read.
        m.d.sync += [does.eq(reads), self._place.eq(reads.a + number),
                     self._last.eq(number == reads.more)]
        jumps, call = self._happens(m, record), self.call.payload
        sets = does.op == Op.SET
        with m.FSM():
            with m.State("Wait"):
                m.d.comb += self.call.ready.eq(1)
                m.d.sync += [
                    number.eq(0), self._differs.eq(0),
                    self._session.eq(call.session), self._peer.eq(call.peer),
                    self._key_peer.eq(call.session >> exact_log2(self._streams)),
                    self._tag.eq(call.tag), self._offered.eq(call.offered),
                    self._confirms.eq(call.confirms), place.eq(call.kind),
                    self._boot.eq(call.boot), self._path.eq(call.path),
                ]
                with m.If(self.call.valid):
                    m.next = "Fetch"
                with m.Elif(self.new_key.valid):
                    m.d.sync += [
                        place.eq(len(Called)), self._peer.eq(self.new_key.payload.node),
                        self._key_peer.eq(self.new_key.payload.peer),
                        self._following.eq(self.new_key.payload.following)]
                    m.next = "Fetch"
            with m.State("Fetch"):
                m.next = "Read"
            with m.State("Read"):
                m.next = "Act"
                with m.If((reads.op == Op.JUMP)
                          & ((reads.argument == If.YOUNG) | (reads.argument == If.SAID))):
                    m.next = "Time"
            with m.State("Time"):
                m.next = "Act"
            with m.State("Act"):
                m.d.comb += [self._wanted.eq(there), acts.eq(there & ready)]
                with m.If(acts):
                    m.d.sync += number.eq(number + 1)
                    m.next = "Read"
                    with m.If(self._last):
                        m.d.sync += [number.eq(0), place.eq(place + 1)]
                        m.next = "Fetch"
                        with m.Switch(does.op):
                            with m.Case(Op.JUMP):
                                with m.If(jumps):
                                    m.d.sync += place.eq(does.target)
                            with m.Case(Op.CALL):
                                m.d.sync += [back.eq(place + 1), place.eq(does.target)]
                            with m.Case(Op.RETURN):
                                m.d.sync += place.eq(back)
                            with m.Case(Op.TELL):
                                m.d.sync += self._refused.eq(self.fresh_tag == 0)
                                with m.If(does.argument == Told.WANTS):
                                    m.d.sync += self._offered.eq(self.fresh_tag)
                            with m.Case(Op.END):
                                m.next = "Wait"
                with m.Elif(~there & (does.source == Source.RANDOM) & self.failed):
                    m.next = "Wait"
        for n, name in enumerate(COUNTERS):
            m.d.comb += getattr(self, f"stat_{name}").eq(
                acts & (does.op == Op.COUNT) & (does.argument == n))
        with m.If(acts & sets):
            with m.Switch(does.argument):
                with m.Case(Set.SLOT0, Set.SLOT1):
                    m.d.sync += self._slot.eq(does.argument == Set.SLOT1)
                with m.Case(Set.SLOT):
                    m.d.sync += self._slot.eq(record[TIME_BITS])
                with m.Case(Set.TURN):
                    m.d.sync += self._slot.eq(
                        Mux(self._filled.all(), ~record[TIME_BITS], self._current))
                for setting, kind in _TYPES.items():
                    with m.Case(setting):
                        m.d.sync += self._type.eq(kind)
                with m.Case(Set.FIRST):
                    m.d.sync += self._session.eq(self._key_peer << exact_log2(self._streams))
                with m.Case(Set.NEXT):
                    m.d.sync += self._session.eq(self._session + 1)
        return m
