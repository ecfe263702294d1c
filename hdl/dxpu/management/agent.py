"""The agent of management: a machine that runs a program.

Ref: docs/reference/management.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.crypto.aes import CipherUse, swapped
from dxpu.crypto.ccm import Ccm
from dxpu.crypto.cmac import MacUse
from dxpu.csr import RegisterPort, connect_ports
from dxpu.fabric.wire.format import HCRC_OFFSET, NODE_UNASSIGNED, VERSION
from dxpu.fabric.wire.frame_fields import wire
from dxpu.fabric.wire.frame_types import FrameType

from .backoff import Backoff
from .digest import FrameDigest
from .events import EventWord
from .format import (
    ASSOCIATED_BYTES, FOLLOWS_MAX, IDENTITY_BYTES, LABEL_ASSOCIATION, LABEL_KNOCK, MANAGERS, Kind,
)
from .operations import Operations
from .program import Check, Count, Do, If, Instruction, Load, Op, Part, Source, State
from .protocol import ANNOUNCE, ASKED, BODY, COUNTERS, EVENT, FRAME, protocol
from .receiver import TYPE_WORD, Came
from .sender import FrameOut
from .store import Bank, WordAddress
from .verdict import Verdict

__all__ = ["ManagementAgent"]

#: Words of a frame behind its message: tag, CRC-32C.
_TAG, _CRC = 4, 1
#: What the agent itself says: it is not there before a cycle has passed.
_SAID = (Source.EVENT, Source.KEY, Source.IDENTITY, Source.STATE)
#: Bits of times.
_TIME = 24
#: An event is sent again after so many ticks, and twice as long each time, so often.
_DOUBLED = 7
#: Nodes announce themselves 2^n ticks one after the other.
_SPREAD = 6


class ManagementAgent(wiring.Component):
    """Does what managers ask of a node.

    It does one thing after the other. All that it keeps is in a :class:`~.store.WordStore` of its
    owner: a record of 128 words for each manager number, the frame that came and the one that is
    sent. Comparisons of tags take as long whatever they find.

    How many cycles each kind of frame takes says docs/reference/management.md ("The unit").

    Parameters
    ----------
    directory
        Of :class:`~.operations.Operations`.
    challenge_ticks, event_ticks : int
        So long after a CHALLENGE there is none for this manager number; so long after an EVENT, or
        an announcement, it is sent again, at first. After the longest wait, which is 128 times as
        long, the next one is as long.
    paths : int
        Announcements go to them in turn.

    Members
    -------
    tick : 1
        Strobe: time goes on; each 64 cycles.
    addressed : 1
        MAC address and identity stay as they are. From then on a node without a number announces
        itself.
    enable : 1
        There is a key, too, and stays as it is. Before, frames are dropped.
    mac, node : 48, 12
        Factory address, first byte uppermost; number of the node, or FFFh.
    identity : array of 8 words
        What the node says of itself, the first byte in the lowest bits.
    column, key_column : 2 out, 32 in
        That column of the key, in the same cycle.
    came : stream of :class:`~.receiver.Came`
    outgoing : stream of :class:`~.sender.FrameOut`
    write, write_at, write_word, write_ready, read, read_at, word
        To :class:`~.store.WordStore`.
    event : stream of :class:`~.events.EventWord`
        Taken when a manager has acknowledged it.
    bus : :class:`~dxpu.csr.RegisterPort`
    random : stream of 32
    failed : 1
        No random word comes any more.
    cmac, cipher : :class:`~dxpu.crypto.cmac.MacUse`, :class:`~dxpu.crypto.aes.CipherUse`
    ready : 1
        The agent has a key and nonces.
    stat_damaged, stat_knock, stat_early, stat_stale, stat_tag : 1
        Pulses: a frame is dropped.
    stat_calculated : 1
        Pulse: a frame has cost a calculation.
    """

    def __init__(self, directory, *, paths=1, challenge_ticks=195, event_ticks=15_258):
        self._operations, self._paths = Operations(directory), paths
        self._ccm, self._digest, self._verdict = Ccm(), FrameDigest(), Verdict()
        self._challenge_ticks, self._event_ticks = challenge_ticks, event_ticks
        super().__init__({
            "tick": In(1),
            "addressed": In(1),
            "enable": In(1),
            "mac": In(48),
            "node": In(12, init=NODE_UNASSIGNED),
            "identity": In(data.ArrayLayout(32, IDENTITY_BYTES // 4)),
            "column": Out(2),
            "key_column": In(32),
            "came": In(stream.Signature(Came)),
            "outgoing": Out(stream.Signature(FrameOut)),
            "write": Out(1), "write_at": Out(WordAddress), "write_word": Out(32),
            "write_ready": In(1),
            "read": Out(1), "read_at": Out(WordAddress), "word": In(32),
            "event": In(stream.Signature(EventWord)),
            "bus": Out(RegisterPort()),
            "random": In(stream.Signature(32)),
            "failed": In(1),
            "cmac": Out(MacUse()),
            "cipher": Out(CipherUse()),
            "ready": Out(1),
            "stat_damaged": Out(Counted("Frames of management in another form than theirs.")),
            "stat_knock": Out(Counted("Questions of managers without the knock of the key.")),
            "stat_early": Out(Counted("Questions of managers too soon after another one.")),
            "stat_stale": Out(Counted(
                "Frames of managers whose nonces or counter fit no association.")),
            "stat_tag": Out(Counted("Frames of managers with a wrong tag.")),
            "stat_calculated": Out(Counted(
                "Frames of management that were looked at by the cipher.")),
        })
        #: The instruction as the program says it, and a cycle later, with what it does decoded: an
        #: instruction reads its word by the one, and acts by the other.
        self._reads, self._does = Signal(Instruction), Signal(Instruction)
        self._is_op, self._is_do = Signal(len(Op)), Signal(1 + max(what.value for what in Do))
        self._is_from = Signal(1 + max(source.value for source in Source))
        #: Number of the present word, and its place; the words of source and second bank.
        self._number, self._place = Signal(7), Signal(7)
        #: It is the last one of the instruction.
        self._last = Signal()
        self._first, self._word = Signal(32), Signal(32)
        #: That of a source which is no bank and no stream, as it was a cycle before.
        self._said = Signal(32)
        #: A word can be handled; the present one is there, too; strobe: and what is done with it
        #: can be.
        self._able, self._wanted, self._acts = Signal(), Signal(), Signal()
        #: Of the frame that came: its bank, dwords, path; kind, and whether it has the form of one.
        self._of, self._kind, self._form = Signal(Came), Signal(8), Signal()
        #: Number of the manager that it is about, from 0; words of the message.
        self._manager, self._size = Signal(range(MANAGERS)), Signal(7)
        self._kept, self._differs, self._fresh = Signal(32), Signal(), Signal()
        #: Of the frame that is sent, and what the cipher does.
        self._says, self._decrypts, self._counter = Signal(Kind), Signal(), Signal(32)
        self._open, self._writer, self._written = Signal(MANAGERS), Signal.like(
            self._manager), Signal()
        self._now, self._heard = Signal(_TIME), Signal()
        #: Operations run; the frame that came is what it is about.
        self._runs, self._of_frame = Signal(), Signal()
        #: Path of the next announcement.
        self._announces_to = Signal(4)

    def elaborate(self, platform):
        m = Module()
        m.submodules.operations = self._operations
        m.submodules.ccm, m.submodules.digest = self._ccm, self._digest
        m.submodules.verdict = self._verdict
        # The key of the association; nobody can read it.
        m.submodules.km = km = Memory(shape=32, depth=4, init=[])
        self._km_write, self._km_read = km.write_port(), km.read_port(domain="comb")
        cipher_read = km.read_port(domain="comb")
        m.d.comb += [
            cipher_read.addr.eq(self._ccm.column), self._ccm.key_column.eq(cipher_read.data),
            self.column.eq(self.cmac.column), self.cmac.key_column.eq(self.key_column),
        ]
        wiring.connect(m, self._ccm.cipher, wiring.flipped(self.cipher))
        with m.If(self.tick):
            m.d.sync += self._now.eq(self._now + 1)
        due, announce = self._time_events(m), self._time_announcements(m)
        there = self._take(m)
        self._compare(m)
        ready = self._give(m)
        self._step(m, there, ready, due, announce)
        return m

    def _op(self, *ops):
        """The instruction is one of these."""
        return Cat(self._is_op[op.value] for op in ops).any()

    def _do(self, *whats):
        """The instruction is to do one of these, without words."""
        return Cat(self._is_do[what.value] for what in whats).any()

    def _from(self, source):
        """The word is from there."""
        return self._is_from[source.value]

    # Words

    def _bank(self, part):
        """Bank of the store of a :class:`Part`."""
        return Array([self._manager, Cat(self._of.second, C(Bank.CAME0.value >> 1, 2)),
                      Const(Bank.OUT.value, 3), Const(Bank.GLOBAL.value, 3)])[part]

    def _take(self, m):
        """The word from its source; returns whether it is there."""
        does, number, there, at = self._does, self._number, Signal(), self._place
        m.d.comb += there.eq(1)
        states = self._states()
        # Words of these are stored or loaded, and go nowhere else.
        taken = self._able & (self.write_ready | self._op(Op.LOAD))
        for source, of in ((self.random, Source.RANDOM), (self.cmac.o, Source.RESULT),
                           (self._ccm.tag_o, Source.TAG)):
            m.d.comb += source.ready.eq(taken & self._from(of))
            with m.If(self._from(of)):
                m.d.comb += there.eq(source.valid)
        m.d.comb += self._km_read.addr.eq(at[:2])
        with m.Switch(does.source):
            with m.Case(Source.MIXED):
                m.d.comb += self._word.eq(Cat(self._kept[16:], self._first[:16]))
            with m.Case(Source.RANDOM):
                m.d.comb += self._word.eq(self.random.payload)
            with m.Case(Source.RESULT):
                m.d.comb += self._word.eq(self.cmac.o.payload)
            with m.Case(Source.TAG):
                m.d.comb += self._word.eq(self._ccm.tag_o.payload)
            with m.Case(*_SAID):
                m.d.comb += self._word.eq(self._said)
            with m.Default():
                m.d.comb += self._word.eq(self._first)
        with m.Switch(does.source):
            with m.Case(Source.EVENT):
                m.d.sync += self._said.eq(self.event.payload.as_value().word_select(number[0], 32))
            with m.Case(Source.KEY):
                m.d.sync += self._said.eq(self._km_read.data)
            with m.Case(Source.IDENTITY):
                m.d.sync += self._said.eq(Array(self.identity)[number[:3]])
            with m.Default():
                m.d.sync += self._said.eq(Array(states)[at[:5]])
        return there

    def _states(self):
        """Values of :class:`State`, and the second word of the MAC address."""
        kept, mac = self._kept, wire(self.mac, 6)
        target = Cat(kept[12:16], kept[0:8])  # a number of 12 bits: byte 0, upper half of byte 1
        values = {
            State.ZERO: Const(0, 32), State.ONE: wire(1, 4),
            State.NEXT: swapped((swapped(kept) + 1)[:32]),
            State.TURNED: Cat(Const(0, 8), target[8:], Const(0, 4), target[:8], Const(0, 8)),
            State.ETHERNET: TYPE_WORD,
            State.TYPE: Const(VERSION << 4 | FrameType.MGMT, 32),
            State.LENGTH: Cat(wire(ASSOCIATED_BYTES, 2),
                              Const(VERSION << 4 | FrameType.MGMT, 16)),
            State.HEAD: Cat(self._says, Const(0, 8))[:8],
            State.MANAGER: self._manager + 1,
            State.LABEL_KNOCK: Const(int.from_bytes(LABEL_KNOCK, "little"), 32),
            State.LABEL_ASSOCIATION: Const(int.from_bytes(LABEL_ASSOCIATION, "little"), 32),
            State.HCRC: Cat(Const(0, 16), self._digest.hcrc), State.CRC: self._digest.body_crc,
            State.TIME: self._now, State.SIZE: self._size, State.MAC: mac[:32],
            State.PATH: Cat(Const(0, 12), self._of.path),
            State.TO_ALL: ~Const(0, 32),
            State.OWN: Cat(Const(0, 8), self.node[8:], Const(0, 4), self.node[:8], Const(0, 8)),
            State.OWN_PATH: Cat(Const(0, 12), self._announces_to),
        }
        values[State.HEAD] = Cat(
            values[State.HEAD],
            Mux(self._says == Kind.ANNOUNCE, 0, Cat(self._manager + 1, Const(0, 8))[:8]),
            wire(((self._size + _TAG) << 2)[:9], 2))
        rest = {State.MAC.value + 1: mac[32:], State.TO_ALL.value + 1: Cat(~Const(0, 16), mac[:16]),
                State.TO_ALL.value + 2: mac[16:]}
        values = {state.value: value for state, value in values.items()} | rest
        return [values[n] for n in range(len(values))]

    def _compare(self, m):
        """Whether something is not as it should be; what is kept."""
        does, word, wrong, checks, was = self._does, self._word, Signal(), Signal(), Signal()
        wrongs = {Check.ALL: word != 0, Check.LAST: word[24:] != 0, Check.FIRST: word[:16] != 0,
                  Check.PATH: Cat(word[:12], word[16:]) != 0}
        unlike = word ^ self.word
        m.d.comb += wrong.eq(Mux(
            self._op(Op.COMPARE),
            (unlike[:16] != 0) | (unlike[16:] != 0) & ~does.argument[0],
            Array(wrongs[check] for check in Check)[does.argument[:2]]))
        # A cycle later, as nobody asks so soon.
        m.d.sync += [checks.eq(self._acts & self._op(Op.COMPARE, Op.CHECK)), was.eq(wrong)]
        with m.If(checks):
            m.d.sync += self._differs.eq(self._differs | was)
        with m.If(self._acts):
            with m.If(self._op(Op.JUMP) & (does.argument == If.DIFFERS)):
                m.d.sync += self._differs.eq(0)
            with m.If(self._op(Op.KEEP)):
                m.d.sync += self._kept.eq(word)
        verdict, acts = self._verdict, self._acts
        m.d.comb += [
            verdict.begins.eq(acts & self._do(Do.UNSEAL)),
            verdict.tag_word.eq(self._number),
            verdict.given.eq(acts & self._op(Op.STORE) & self._from(Source.TAG)
                             & (does.to == Part.GLOBAL)),
            verdict.decrypts.eq(self._decrypts),
            verdict.compared.eq(acts & self._op(Op.COMPARE) & does.last),
            # What was read in the store, from wherever the program takes its word.
            verdict.alike.eq(self._first == self.word),
            verdict.kept.eq(does.to == Part.RECORD),
        ]

    def _give(self, m):
        """The word to where it is wanted; returns whether it is taken there."""
        does, wanted, word, ready = self._does, self._wanted, self._word, Signal()
        acts, last, ccm, digest = self._acts, self._last, self._ccm, self._digest
        text, associated, payload = (s.payload for s in (self.cmac.i, ccm.associated, ccm.i))
        out_at = Signal(7)
        m.d.comb += [
            out_at.eq(does.b + self._number + Mux(does.b_behind, self._size, 0)),
            text.data.eq(word), text.last.eq(does.last & last),
            text.bytes.eq(Mux(does.argument[:2] == 0, 4, does.argument[:2])),
            associated.data.eq(word), associated.bytes.eq(4), associated.last.eq(does.last & last),
            payload.data.eq(word), payload.bytes.eq(4), payload.last.eq(last),
            digest.word.eq(word),
            digest.byte_count.eq(Mux(self._op(Op.HEADER), does.argument[:2], 0)),
            digest.begin.eq(acts & self._do(Do.BEGIN)),
        ]
        self._to = Cat(out_at, self._bank(does.to))
        stores = self._op(Op.STORE, Op.OUT, Op.CRYPT)
        runs = self._runs
        writes, verdict = self._operations, self._verdict
        # What is kept of a manager stays as it is, but for the nonces that are drawn at first, and
        # the time of his last question.
        guarded = (does.to == Part.RECORD) & (does.b != ASKED) & self.ready
        # An answer needs the right tag.
        silent = (self._says == Kind.ANSWER) & ~(verdict.authentic | verdict.repeated)
        m.d.comb += [
            self.write.eq(acts & stores & ~(guarded & ~verdict.authentic)),
            self.write_at.eq(self._to),
            self.write_word.eq(Mux(self._op(Op.CRYPT), ccm.o.payload.data, word)),
        ]
        with m.If(runs):
            m.d.comb += [
                self.write.eq(writes.write), self.write_word.eq(writes.write_word),
                self.write_at.eq(Cat((writes.answer_at + BODY)[:7], Const(Bank.OUT.value, 3))),
                writes.write_ready.eq(self.write_ready),
            ]
        m.d.comb += [
            digest.header.eq(acts & (self._op(Op.HEADER)
                                     | self._op(Op.OUT) & (out_at[2:] == 1)
                                     & (out_at[:2] != 3))),
            digest.body.eq(acts & (self._op(Op.BODY) | self._op(Op.OUT) & (out_at >= 8))),
        ]
        mac, crypt, say, run = (self._op(Op.MAC), self._op(Op.CRYPT), self._do(Do.SAY),
                                self._do(Do.RUN))
        more = self._op(Op.ASSOCIATED)
        m.d.comb += [
            self.cmac.i.valid.eq(wanted & mac), ccm.associated.valid.eq(wanted & more),
            ccm.i.valid.eq(wanted & crypt & self.write_ready),
            ccm.o.ready.eq(self.write_ready),
            self.outgoing.valid.eq(wanted & say & ~silent),
            writes.start.eq(wanted & run & ~runs),
            ready.eq(~Cat(asked & ~can for asked, can in (
                (self._op(Op.STORE, Op.OUT), self.write_ready), (mac, self.cmac.i.ready),
                (more, ccm.associated.ready), (crypt, ccm.i.ready),
                (say, self.outgoing.ready | silent), (run, runs & writes.done))).any()),
        ]
        frame, job = self.outgoing.payload, ccm.job.payload
        working, path = Signal(), Signal(4)  # the cipher has a message; whither the frame goes
        with m.If(acts & self._op(Op.OUT) & (out_at == HCRC_OFFSET // 4 - 2)):
            m.d.sync += path.eq(word[12:16])
        m.d.comb += [
            frame.dwords.eq(BODY + self._size + _TAG + _CRC), frame.path.eq(path),
            ccm.job.valid.eq(working), job.length.eq(self._size << 2), job.associated.eq(1),
            job.decrypt.eq(self._decrypts),
            job.nonce.eq(Cat(Cat(Mux(self._decrypts, self._kind, self._says), C(0, 8))[:8],
                             Cat(self._manager + 1, C(0, 8))[:8], C(0, 56), self._counter)),
        ]
        with m.If(acts & self._do(Do.SEAL, Do.UNSEAL)):
            m.d.sync += [working.eq(1), self._decrypts.eq(self._do(Do.UNSEAL))]
        with m.If(ccm.job.ready):
            m.d.sync += working.eq(0)
        return ready

    # The program

    def _happens(self, m):
        """Whether a jump is made."""
        does, holds, kept = self._does, Signal(), self._kept
        target = Cat(kept[12:16], kept[0:8])
        # The subtraction and the comparison are most of a cycle: there is a state for them.
        age, young = (self._now - self.word[:_TIME])[:_TIME], Signal()
        m.d.sync += young.eq(age < self._challenge_ticks)
        conditions = {
            If.ALWAYS: Const(1, 1),
            If.DIFFERS: self._differs,
            If.OURS: (target == self.node) & (target != NODE_UNASSIGNED),
            If.ANYBODY: target == NODE_UNASSIGNED,
            If.FROM_MANAGER: Cat(kept[16:24], kept[8:12]) == 0,
            If.FORM: self._form,
            If.KIND: self._kind == does.b,
            If.EMPTY: self._size == 0,
            If.OPEN: self._open.bit_select(self._manager, 1),
            If.FRESH: self._fresh,
            If.INTACT: self._digest.intact,
            If.YOUNG: young,
            If.DRY: ~self.random.valid,
            If.TOLD: self._open.bit_select(self._manager, 1) & self._written
                     & (self._manager == self._writer) & self.event.valid,
            If.MORE: self._manager != 0,
        }
        m.d.comb += holds.eq(Array([conditions[c] for c in If] + [C(0, 1)])[does.argument])
        return holds ^ does.last

    def _time_events(self, m):
        """When the event is sent; returns whether it is due."""
        m.submodules.event_time = time = Backoff(first=self._event_ticks, doubled=_DOUBLED)
        heard = self._acts & self._do(Do.HEARD)
        # A cycle later, so that the queue of events is no part of what an instruction waits for.
        m.d.sync += self._heard.eq(heard & self._verdict.authentic)
        m.d.comb += [
            time.tick.eq(self.tick), time.sent.eq(self._acts & self._do(Do.SENT)),
            time.anew.eq(heard), self.event.ready.eq(self._heard),
        ]
        return (self.event.valid & self._written & time.due
                & self._open.bit_select(self._writer, 1))

    def _time_announcements(self, m):
        """When a node without a number says that it is there; returns whether that is due."""
        m.submodules.announcement_time = time = Backoff(
            first=self._event_ticks, doubled=_DOUBLED, delay=(1 << 8 + _SPREAD) - 1)
        silent, before, sent = Signal(), Signal(init=1), Signal()
        # Nodes that start at once begin one after the other, whatever the step from one's address
        # to the next one's.
        turn = self.mac[:8] ^ self.mac[8:16][::-1] ^ self.mac[16:24]
        m.d.comb += [
            silent.eq(~self.addressed | (self.node != NODE_UNASSIGNED)),
            sent.eq(self._acts & self._do(Do.ANNOUNCED)),
            time.tick.eq(self.tick), time.sent.eq(sent), time.anew.eq(before & ~silent),
            time.delay.eq(Cat(Const(0, _SPREAD), turn)),
        ]
        m.d.sync += before.eq(silent)
        with m.If(sent):
            m.d.sync += self._announces_to.eq(Mux(self._announces_to == self._paths - 1, 0,
                                                  self._announces_to + 1))
        return ~silent & ~before & time.due

    def _step(self, m, there, ready, due, announce):
        """Runs the program."""
        does, number, acts = self._does, self._number, self._acts
        steps = protocol().assembled()
        m.submodules.program = rom = Memory(shape=Instruction, depth=len(steps), init=steps)
        fetch = rom.read_port()
        place, back = Signal(range(len(steps))), Signal(range(len(steps)))
        m.d.comb += [fetch.addr.eq(place), self._reads.eq(fetch.data), fetch.en.eq(1)]
        jumps, operations = self._happens(m), self._operations
        reads = self._reads
        has_words = Value.cast(reads.op) < Op.JUMP.value
        # A word of a stream is looked at when it is there.
        of_stream = Cat(reads.source == source for source in (
            Source.RANDOM, Source.RESULT, Source.TAG)).any()
        looks = (reads.op == Op.COMPARE) | (reads.op == Op.JUMP) & (reads.argument == If.YOUNG)
        source = Mux(Value.cast(reads.source) >= len(Part), Source.GLOBAL.value,
                     Value.cast(reads.source))[:2]
        nothing = (reads.count == Count.SIZE) & (self._size == 0) & has_words
        ends, last, at = Signal(), Signal(), Signal(7)
        m.d.comb += last.eq(number + 1 == Mux(reads.count == Count.SIZE, self._size,
                                              reads.more + 1))
        m.d.comb += at.eq(reads.a + number + Mux(reads.a_behind, self._size, 0))
        # Behind "Read" these are of the instruction that is read.
        m.d.sync += [
            does.eq(reads), self._place.eq(at), self._last.eq(last), ends.eq(last | ~has_words),
            self._is_op.eq(1 << Value.cast(reads.op)),
            self._is_do.eq(Mux(reads.op == Op.DO, 1 << reads.argument, 0)),
            self._is_from.eq(1 << Value.cast(reads.source)),
        ]
        m.d.comb += self.read_at.eq(self._to)
        connect_ports(m, operations.bus, wiring.flipped(self.bus))
        authentic = self._verdict.authentic
        m.d.comb += [
            operations.words.eq(self._size), operations.word.eq(self.word),
            # No register notices a frame without the right tag.
            self.bus.request.valid.eq(operations.bus.request.valid & authentic),
            operations.bus.request.ready.eq(self.bus.request.ready & authentic),
        ]
        with m.FSM() as fsm:
            with m.State("Wait"):
                m.d.sync += [number.eq(0), self._differs.eq(0), place.eq(0)]
                with m.If(~self.ready & self.enable & self.random.valid):
                    m.d.sync += self._manager.eq(0)
                    m.next = "Fetch"
                with m.Elif(self.ready & ~self.enable):
                    # Another key, or none: what was made with the old one is forgotten.
                    m.d.sync += [self.ready.eq(0), self._open.eq(0), self._written.eq(0)]
                with m.Elif(self.came.valid):
                    m.d.sync += [place.eq(FRAME), self._of.eq(self.came.payload)]
                    m.next = "Fetch"
                    with m.If(~self.ready):  # dropped
                        m.d.comb += self.came.ready.eq(1)
                        m.next = "Wait"
                with m.Elif(due):
                    m.d.sync += [place.eq(EVENT), self._manager.eq(self._writer)]
                    m.next = "Fetch"
                with m.Elif(announce):
                    m.d.sync += place.eq(ANNOUNCE)
                    m.next = "Fetch"
            with m.State("Fetch"):
                m.next = "Read"
            # The word of the source, or any: what the program says is late for an enable. Of the
            # banks of frames that come only that of the frame at hand is read.
            with m.State("Read"):
                m.d.comb += [self.read.eq(1), self.read_at.eq(Cat(at, self._bank(source)))]
                m.next = "Look"
                with m.If(nothing):
                    m.d.sync += place.eq(place + 1)
                    m.next = "Fetch"
                with m.Elif((of_stream | ~has_words) & ~looks):
                    m.next = "Act"
            with m.State("Look"):  # that of the second bank
                m.d.comb += self.read.eq(looks)
                m.d.sync += self._first.eq(self.word)
                m.next = "Act"
                with m.If(self._from(Source.STATE) & ~self._digest.ready):  # which may be a CRC
                    m.next = "Look"
                with m.If(self._op(Op.JUMP)):
                    m.next = "Time"
            with m.State("Time"):  # the word of the second bank is looked at
                m.next = "Act"
            with m.State("Act"):
                m.d.comb += [self._able.eq(self._digest.ready),
                             self._wanted.eq(self._able & there), acts.eq(self._wanted & ready)]
                with m.If(self._runs):
                    m.d.comb += [
                        self.read.eq(operations.read),
                        self.read_at.eq(Cat((operations.request_at + BODY)[:7],
                                            self._bank(Part.CAME.value))),
                    ]
                with m.If(acts):
                    m.d.sync += number.eq(number + 1)
                    m.next = "Read"
                    with m.If(ends):
                        m.d.sync += [number.eq(0), place.eq(place + 1)]
                        m.next = "Fetch"
                        with m.If(self._op(Op.JUMP) & jumps | self._op(Op.CALL)):
                            m.d.sync += place.eq(Cat(does.a, does.more))
                        with m.If(self._op(Op.CALL)):
                            m.d.sync += back.eq(place + 1)
                        with m.If(self._op(Op.RETURN)):
                            m.d.sync += place.eq(back)
                        with m.If(self._do(Do.END)):
                            m.next = "Leave"
                with m.Elif(~there & self._from(Source.RANDOM) & self.failed):
                    m.next = "Leave"
            with m.State("Leave"):
                # The frame makes room; an event, or the start, had none.
                m.d.comb += self.came.ready.eq(self._of_frame)
                m.next = "Wait"
        m.d.comb += self._verdict.forgets.eq(fsm.ongoing("Wait") | fsm.ongoing("Leave"))
        with m.If(fsm.ongoing("Wait")):
            m.d.sync += self._of_frame.eq(self.ready & self.enable & self.came.valid)
        self._change(m, does, acts)
        for n, name in enumerate(COUNTERS):
            m.d.comb += getattr(self, f"stat_{name}").eq(
                acts & self._op(Op.COUNT) & (does.argument == n))
        return m

    def _change(self, m, does, acts):
        """What LOAD and DO change."""
        word, operations = self._word, self._operations
        follows = swapped(word)[:16]
        rest = self._of.dwords - (BODY + _TAG + _CRC)
        does_load = acts & self._op(Op.LOAD)
        m.d.comb += [
            self._km_write.en.eq(does_load & (does.argument == Load.KEY)),
            self._km_write.addr.eq(self._number[:2]), self._km_write.data.eq(word),
            self.stat_calculated.eq(acts & self._do(Do.UNSEAL)),
        ]
        with m.If(does_load), m.Switch(does.argument):
            with m.Case(Load.HEAD):
                m.d.sync += [
                    self._kind.eq(word[:8]), self._manager.eq((word[8:16] - 1)[:2]),
                    self._size.eq(rest),
                    self._form.eq((word[8:16] != 0) & (word[8:16] <= MANAGERS)
                                  & (self._of.dwords >= BODY + _TAG + _CRC)
                                  & (follows == ((rest + _TAG) << 2)[:16])
                                  & (follows <= FOLLOWS_MAX)),
                ]
            with m.Case(Load.COUNTER):
                m.d.sync += self._counter.eq(word)
            with m.Case(Load.SIZE):
                m.d.sync += self._size.eq(word)
        with m.If(acts):
            with m.If(self._do(Do.KIND)):
                m.d.sync += self._says.eq(does.b)
                with m.If(does.b == Kind.EVENT):
                    m.d.sync += self._size.eq(2)
                with m.Elif(does.b != Kind.ANSWER):
                    m.d.sync += self._size.eq(IDENTITY_BYTES // 4 - _TAG)
            with m.If(self._do(Do.KNOWN, Do.FRESH)):
                m.d.sync += self._fresh.eq(self._do(Do.FRESH))
            with m.If(self._do(Do.OPEN)):
                with m.If(self._verdict.authentic):
                    m.d.sync += self._open.bit_select(self._manager, 1).eq(1)
            with m.If(self._do(Do.NEXT)):
                m.d.sync += self._manager.eq(self._manager + 1)
            with m.If(self._do(Do.READY)):
                m.d.sync += self.ready.eq(1)
            with m.If(self._do(Do.RUN)):
                m.d.sync += [self._size.eq(operations.size), self._runs.eq(0)]
                with m.If(operations.wrote & self._verdict.authentic):
                    m.d.sync += [self._writer.eq(self._manager), self._written.eq(1)]
        with m.If(operations.start):
            m.d.sync += self._runs.eq(1)
