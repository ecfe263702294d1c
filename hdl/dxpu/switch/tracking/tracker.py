"""Completion tracking: every request that left for a slot gets its final completion.

Ref: PCIe Base 5.0, 2.2.9 and 2.3.1.1.

The open requests are in block RAM: `ways` memories of equal depth. A request may stand in any of
them at one address, its *set*, which is a hash of requester ID and tag, so whatever is known by
its name is found or missed in one read. There are three kinds of operation: a request takes a free
place of its set, a completion changes or frees the place of its request, and the sweep, which goes
round all sets for ever, looks for entries that are fenced or overdue. Each goes through

    0 read   choose an operation, address the memories
    1 fetch  keep what they say
    2 look   compare names, choose a way
    3 act    write the way back, and tell

one operation of each kind at a time, so that three of four cycles are used at most and each kind
gets one in any four. No operation is begun while another one on the same set is under way. What an
operation needs to tell has a place before it begins, so nothing in the pipeline ever waits.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import counted
from dxpu.memory import DisjointMemory
from dxpu.priority import lowest_bit, one_hot_mux
from dxpu.stage import counted_fill
from dxpu.tlp.types import CompletionStatus

from .types import (
    GRANULE, TIME_BITS, DropCause, Expired, RoundTrip, TrackedAnswer, TrackedCompletion,
    TrackedRequest, TrackerVerdict,
)

__all__ = ["CompletionTracker"]

#: Bits of the time at which an entry was made, in granules; half of the range can be a deadline.
STAMP = 13
#: Bits of a finer time within a granule, of a tracker that measures.
FINE = TIME_BITS - STAMP


#: Members of a request that its entry keeps as they are.
KEPT = ("slot", "generation", "dead", "requester_id", "tag", "tc", "attr", "locked", "splits",
        "returns", "lower_address")


class Entry(data.Struct):
    """An open request, and what is left of it."""

    used: 1
    late: 1              #: reported as expired
    stamp: STAMP
    slot: 5
    generation: 16
    dead: 1              #: to be answered, whatever the fence says
    requester_id: 16
    tag: 10
    tc: 3
    attr: 3
    locked: 1
    splits: 1
    returns: 1
    lower_address: 7
    end: 13              #: bytes left, plus bits 1:0 of the lower address


class Operation(data.Struct):
    """What a stage of the pipeline works at; one bit or none is set."""

    request: 1
    completion: 1
    sweep: 1


class CompletionTracker(wiring.Component):
    """Remembers non-posted requests sent towards slots; answers those of slots that are fenced.

    A request is taken when it has a place; its TLP may leave then. It is held back while its set
    has no free place, and while an older request of the same slot, requester ID and tag is open.
    From then on it gets exactly one final completion: the one from its slot that passes, or one
    made here after the slot was fenced.

    Completions of slots are judged in order. One passes, whatever else is in it, if its slot is not
    fenced and its slot, generation, requester ID and tag are those of an open request. The others
    are dropped and counted by cause, and change nothing. It is the last one of its request if it is
    unsuccessful (CRS included) or has no data; always, if the request is no memory read; else when
    its byte count is no larger than the data from its first byte on (not with BCM, which makes that
    so in every first part), or when all bytes that were asked for have come. One that passes is
    counted as irregular if byte count, lower address or amount of data are not what is due next;
    only the requester may judge that (2.3.2).

    While ``fence`` of a slot is set its completions are dropped, and each of its entries is
    answered with ``status`` (with ``abort``: Completer Abort) and freed, requests that are still
    taken included. A request that is ``dead`` is answered so without a fence. All else goes on.

    Latency 4 cycles from a completion to its verdict and 3 to the request's ``ready`` when idle; up
    to 13 when others are under way in the same set of many. Throughput one request and one
    completion per 4 cycles. The sweep takes ``4 * entries / ways`` cycles a round and answers one
    entry per set in it. After reset the memories are cleared, one set a cycle; requests and
    completions wait.

    Parameters
    ----------
    ports : int
        Slots, 1 to 32.
    entries : int
        Requests that can be open: a power of two.
    ways : int
        Places for a request, a power of two less than ``entries``. One requester with tags in
        sequence can use all ``entries``, whatever the ways.
    granule : int
        Unit of time in cycles, a power of two, at least one round of the sweep.
    status : CompletionStatus
        Of answers: ``UR`` or ``CA``.
    timed : bool
        Each round trip is measured, in units of ``granule / 256`` cycles; a granule has 256 cycles
        at least then. An entry is 8 bits longer.

    Members
    -------
    request : stream of :class:`TrackedRequest`
    completion : stream of :class:`TrackedCompletion`
    verdict : stream of :class:`TrackerVerdict`
        One for each completion, in order.
    answer : stream of :class:`TrackedAnswer`
        An answer must not overtake completions that passed before it.
    fence : ``ports``
        Level, per slot. Acts on what is taken from the next cycle on.
    abort : ``ports``
        Level, per slot: answers are Completer Abort, from when it rises until it has fallen and the
        slot is drained or its fence is open: software may be quicker than the sweep.
    drained : ``ports``
        The slot has no open request; falls in the cycle after one was taken.
    deadline : cycles
        Requests open for longer are reported: never early, and not more than two granules and one
        round late. At most 4095 granules.
    bus : 8
        Bus of the downstream ports, which are the completers of answers.
    expired : :class:`Expired`
        Strobe, once for each entry that passes its deadline before its slot is fenced. Whoever
        hears it fences the slot.
    held : 1
        The request offered did not find a place when it was last looked for.
    trip : :class:`RoundTrip`
        A cycle after a last completion was judged; not for what is answered here. Only with
        ``timed``.
    stat_answered, stat_expired : 1
        Pulses: an answer was made; a deadline passed.
    stat_fenced, stat_unexpected, stat_stale : 1
        Pulses: a completion was dropped, see :class:`DropCause`.
    stat_irregular : 1
        Pulse: a completion passed that is not what is due next.
    """

    #: All counted events, and what each counts.
    STATS = {
        "stat_answered": "Requests to slots that were answered with UR in their place.",
        "stat_expired": "Requests that were open for longer than the deadline.",
        "stat_fenced": "Completions of slots that are fenced; dropped.",
        "stat_unexpected": "Completions without a request: late, doubled, made up; dropped.",
        "stat_stale": "Completions for a request of an earlier binding; dropped.",
        "stat_irregular": "Completions of slots that were passed on with another byte count, lower "
                          "address or amount of data than their requests were due.",
    }

    def __init__(self, *, ports=8, entries=256, ways=2, granule=GRANULE, status=CompletionStatus.UR,
                 timed=False):
        if not isinstance(ports, int) or not 1 <= ports <= 32:
            raise ValueError(f"ports must be 1 to 32, not {ports!r}")
        if not isinstance(entries, int) or entries < 2 or entries & (entries - 1):
            raise ValueError(f"entries must be a power of two of at least 2, not {entries!r}")
        if not isinstance(ways, int) or ways < 1 or ways & (ways - 1) or ways >= entries:
            raise ValueError(f"ways must be a power of two less than entries, not {ways!r}")
        if (not isinstance(granule, int) or granule & (granule - 1)
                or granule < 4 * entries // ways):
            raise ValueError(f"granule must be a power of two of at least {4 * entries // ways} "
                             f"cycles, not {granule!r}")
        if status not in (CompletionStatus.UR, CompletionStatus.CA):
            raise ValueError(f"status must be UR or CA, not {status!r}")
        if timed and granule < 1 << FINE:
            raise ValueError(f"granule must be at least {1 << FINE} cycles if trips are timed, not "
                             f"{granule!r}")
        self._ports, self._ways, self._status, self._timed = ports, ways, status, timed
        self._entries, self._sets = entries, entries // ways
        self._tick = exact_log2(granule)
        super().__init__({
            "request": In(stream.Signature(TrackedRequest)),
            "completion": In(stream.Signature(TrackedCompletion)),
            "verdict": Out(stream.Signature(TrackerVerdict)),
            "answer": Out(stream.Signature(TrackedAnswer)),
            "fence": In(ports),
            "abort": In(ports),
            "drained": Out(ports, init=-1),
            "deadline": In(range(granule * (2 ** (STAMP - 1) - 1) + 1)),
            "bus": In(8),
            "expired": Out(Expired),
            "held": Out(1),
            **({"trip": Out(RoundTrip)} if timed else {}),
        } | counted(self.STATS))

        # The pipeline: operations and their sets, stage by stage.
        self._stage = [Signal(Operation, name=f"stage{n}") for n in range(4)]
        self._set = [Signal(exact_log2(self._sets), name=f"set{n}") for n in range(4)]
        self._position = Signal(exact_log2(self._sets))  #: set that the sweep looks at next
        self._clearing = Signal(init=1)
        entry = data.Layout.cast(Entry)
        self._layout = data.StructLayout({**entry.members, **({"fine": FINE} if timed else {})})
        self._words = [Signal(self._layout, name=f"word{n}", reset_less=True) for n in range(ways)]
        # What is known in the last stage.
        self._way = Signal(ways, reset_less=True)     #: the way to be written
        self._entry = Signal(self._layout, reset_less=True)  #: what it holds
        self._known = Signal(reset_less=True)         #: there is an entry of this name
        self._stale = Signal(reset_less=True)         #: of another generation
        self._fenced = Signal(reset_less=True)        #: the slot is fenced
        self._aborted = Signal(self._ports)           #: and what is left is aborted
        # What happens there.
        self._update = Signal(self._layout)
        self._opened, self._partial, self._closed, self._marked = (Signal() for _ in range(4))
        #: How many requests are open (:class:`~dxpu.stage.Fill`).
        self.fill = counted_fill(self._opened, self._closed, entries,
                                 "Requests to slots that are open.")
        # Time in granules, and in units within one, and the newest stamp that is overdue.
        self._now, self._fine, self._overdue = Signal(STAMP), Signal(FINE), Signal(STAMP)

    def elaborate(self, platform):
        m = Module()
        self._read(m)
        self._fetch(m)
        self._look(m)
        self._write(m)
        self._act_request(m)
        self._act_completion(m)
        self._act_sweep(m)
        self._count(m)
        self._time(m)
        return m

    def _hash(self, name):
        """Set of a request or completion; for one requester all sets in turn as tags count."""
        bits = exact_log2(self._sets)
        terms = [[] for _ in range(bits)]
        for n, bit in enumerate(name.tag):
            terms[n % bits].append(bit)
        # Numbers that differ are mostly low bits: let them meet the bits of tags that differ least.
        for part in (name.requester_id[8:], name.requester_id[:8]):
            for n, bit in enumerate(part):
                terms[-1 - n % bits].append(bit)
        return Cat(Cat(t).xor() for t in terms)

    def _read(self, m):
        """Choose an operation: requests and completions in turn, or the sweep, which goes first if
        it has waited: somebody may try the set that is its next one again and again."""
        sets = [self._hash(self.request.p), self._hash(self.completion.p), self._position]
        offered = [self.request.valid,
                   self.completion.valid & (~self.verdict.valid | self.verdict.ready),
                   C(1, 1)]
        can = []
        for n, (index, offer) in enumerate(zip(sets, offered, strict=True)):
            alone = ~Cat(Value.cast(stage)[n] for stage in self._stage[1:]).any()
            can.append(offer & alone & self._undisturbed(index) & ~self._clearing)
        turn, waited = Signal(), Signal(3)
        chosen, sweeps = self._stage[0], Signal()
        m.d.comb += [
            sweeps.eq(can[2] & (waited.all() | ~can[0] & ~can[1])),
            chosen.completion.eq(can[1] & ~sweeps & ~(can[0] & turn)),
            chosen.request.eq(can[0] & ~sweeps & ~chosen.completion),
            chosen.sweep.eq(sweeps),
            self._set[0].eq(Mux(sweeps, sets[2], Mux(chosen.completion, sets[1], sets[0]))),
        ]
        with m.If(sweeps):
            m.d.sync += waited.eq(0)
        with m.Elif(~waited.all()):
            m.d.sync += waited.eq(waited + 1)
        with m.If(chosen.completion | chosen.request):
            m.d.sync += turn.eq(chosen.completion)
        with m.If(chosen.sweep | self._clearing):
            m.d.sync += self._position.eq(self._position + 1)
        with m.If(self._clearing & self._position.all()):
            m.d.sync += self._clearing.eq(0)
        for n in range(3):
            m.d.sync += [self._stage[n + 1].eq(self._stage[n]), self._set[n + 1].eq(self._set[n])]

    def _undisturbed(self, index):
        """No operation on the set is under way."""
        return ~Cat(Value.cast(stage).any() & (other == index) for stage, other in zip(
            self._stage[1:], self._set[1:], strict=True)).any()

    def _fetch(self, m):
        for n in range(self._ways):
            m.submodules[f"way{n}"] = way = DisjointMemory(
                shape=self._layout, depth=self._sets, init=[])
            write, read = way.write_port(), way.read_port()
            m.d.comb += [
                read.addr.eq(self._set[0]),
                read.en.eq(Value.cast(self._stage[0]).any()),
                write.addr.eq(Mux(self._clearing, self._position, self._set[3])),
                Value.cast(write.data).eq(Mux(self._clearing, 0, Value.cast(self._update))),
                write.en.eq(self._clearing | self._way[n]
                            & (self._opened | self._partial | self._closed | self._marked)),
            ]
            m.d.sync += self._words[n].eq(read.data)

    def _look(self, m):
        """Choose the way: with the request's name, free, or to be swept."""
        stage, ways = self._stage[2], self._words
        asked = Mux(stage.request, self._name(self.request.p), self._name(self.completion.p))
        match = Cat(w.used & (self._name(w) == asked) & ~(stage.completion & w.dead) for w in ways)
        stale = match & Cat(w.generation != self.completion.p.generation for w in ways)
        free = ~Cat(w.used for w in ways)
        fenced = Cat(w.used & (w.dead | self.fence.bit_select(w.slot, 1)) for w in ways)
        late = Cat(w.used & ~w.late & ~(self._overdue - w.stamp)[STAMP - 1]
                   for w in ways)

        answers = fenced.any() & (~self.answer.valid | self.answer.ready)
        swept = lowest_bit(Mux(answers, fenced, late & ~fenced))
        way = Signal(self._ways)
        m.d.comb += way.eq(
            Mux(stage.request, lowest_bit(free), Mux(stage.completion, match, swept)))
        m.d.sync += [
            self._way.eq(way),
            Value.cast(self._entry).eq(one_hot_mux(way, ways)),
            self._known.eq(match.any()),
            self._stale.eq(stale.any()),
            self._fenced.eq(Mux(stage.sweep, answers,
                                self.fence.bit_select(self.completion.p.slot, 1))),
        ]

    def _name(self, x):
        """What makes a request and its completions belong together."""
        return Cat(x.slot, x.requester_id, x.tag)

    def _write(self, m):
        """The entry as it will be."""
        stage, update, entry, request = self._stage[3], self._update, self._entry, self.request.p
        # What a stream offers is the same while its operation is under way: sum it a cycle before.
        end = Signal(13, reset_less=True)
        m.d.sync += end.eq(_end(request))
        m.d.comb += [update.eq(entry), update.used.eq(~self._closed)]
        with m.If(stage.request):
            m.d.comb += [
                *(update[name].eq(request[name]) for name in KEPT),
                update.late.eq(0), update.stamp.eq(self._now), update.end.eq(end),
            ]
            if self._timed:
                m.d.comb += update.fine.eq(self._fine)
        with m.Elif(stage.completion):
            dwords = self.completion.p.dwords
            m.d.comb += [
                update.end.eq(entry.end - Cat(C(0, 2), dwords)),
                update.lower_address.eq(Cat(C(0, 2), entry.lower_address[2:] + dwords)),
            ]
        with m.Else():
            m.d.comb += update.late.eq(1)

    def _act_request(self, m):
        stage, taken = self._stage[3], Signal()
        m.d.comb += [
            taken.eq(stage.request & ~self._known & self._way.any()),
            self.request.ready.eq(taken),
            self._opened.eq(taken),
        ]
        with m.If(stage.request):
            m.d.sync += self.held.eq(~taken)

    def _act_completion(self, m):
        stage, e, c, verdict = self._stage[3], self._entry, self.completion.p, self.verdict
        success, loaded, cause = c.status == CompletionStatus.SC, c.dwords.any(), Signal(DropCause)
        # What the completion says by itself is summed a cycle before.
        ends, surplus = Signal(13, reset_less=True), Signal(signed(14), reset_less=True)
        left, told_all, regular = Signal(signed(14)), Signal(), Signal()
        m.d.sync += [ends.eq(_end(c)), surplus.eq(Cat(C(0, 2), c.dwords) - _count(c))]
        m.d.comb += [
            left.eq(e.end - Cat(C(0, 2), c.dwords)),  # in whole dwords: 0 to -3 is all
            told_all.eq(~c.bcm & (surplus >= e.lower_address[:2])),
        ]
        with m.If(self._fenced):
            m.d.comb += cause.eq(DropCause.FENCED)
        with m.Elif(~self._known):
            m.d.comb += cause.eq(DropCause.UNEXPECTED)
        with m.Elif(self._stale):
            m.d.comb += cause.eq(DropCause.STALE)

        with m.If(~success):
            m.d.comb += regular.eq(~loaded)
        with m.Elif(e.splits):
            m.d.comb += regular.eq((c.bcm | (ends == e.end)) & loaded & (left >= -3)
                                   & (c.lower_address == e.lower_address))
        with m.Else():
            m.d.comb += regular.eq(Mux(e.returns, left == 0, ~loaded))

        passes, final = Signal(), Signal()
        m.d.comb += [
            passes.eq(stage.completion & (cause == DropCause.NONE)),
            final.eq(~success | ~e.splits | ~loaded | (left <= 0) | told_all),
            self._partial.eq(passes & ~final),
            self._closed.eq(passes & final | stage.sweep & self._fenced),
            self.completion.ready.eq(stage.completion),
            *(getattr(self, f"stat_{member.name.lower()}").eq(stage.completion & (cause == member))
              for member in DropCause if member is not DropCause.NONE),
            self.stat_irregular.eq(passes & ~regular),
        ]
        if self._timed:
            m.d.sync += [
                self.trip.strobe.eq(passes & final), self.trip.slot.eq(e.slot),
                self.trip.time.eq(Cat(self._fine, self._now) - Cat(e.fine, e.stamp)),
            ]
        with m.If(verdict.ready):
            m.d.sync += verdict.valid.eq(0)
        with m.If(stage.completion):
            m.d.sync += [verdict.valid.eq(1), verdict.p.accept.eq(passes),
                         verdict.p.cause.eq(cause)]

    def _act_sweep(self, m):
        stage, e, answer = self._stage[3], self._entry, self.answer
        completion = answer.p.completion
        m.d.sync += self._aborted.eq(self.abort | self._aborted & self.fence & ~self.drained)
        made = stage.sweep & self._fenced
        m.d.comb += [
            self.stat_answered.eq(made),
            self._marked.eq(stage.sweep & ~self._fenced & self._way.any()),
            self.stat_expired.eq(self._marked),
            self.expired.strobe.eq(self._marked),
            self.expired.slot.eq(e.slot),
        ]
        with m.If(answer.ready):
            m.d.sync += answer.valid.eq(0)
        with m.If(made):
            m.d.sync += [
                answer.valid.eq(1),
                answer.p.slot.eq(e.slot),
                *(completion[name].eq(e[name]) for name in (
                    "requester_id", "tag", "tc", "attr", "lower_address", "locked")),
                completion.status.eq(Mux(
                    (self.abort | self._aborted).bit_select(e.slot, 1), CompletionStatus.CA,
                    self._status)),
                completion.completer_id.eq(Cat(C(0, 3), e.slot, self.bus)),
                completion.byte_count.eq(e.end - e.lower_address[:2]),
            ]

    def _count(self, m):
        """Open requests of each slot."""
        slot = Mux(self._opened, self.request.p.slot, self._entry.slot)
        for n in range(self._ports):
            count = Signal(range(self._entries + 1), name=f"open{n}")
            with m.If(self._opened & (slot == n)):
                m.d.sync += [count.eq(count + 1), self.drained[n].eq(0)]
            with m.Elif(self._closed & (slot == n)):
                m.d.sync += [count.eq(count - 1), self.drained[n].eq(count == 1)]

    def _time(self, m):
        """An entry is overdue when more granules have begun than the deadline has, rounded up.

        Stamps are compared by the sign of their difference, in which half of the range is the past.
        """
        cycles, limit = Signal(self._tick + STAMP), Signal(STAMP)
        deadline = self.deadline
        m.d.comb += [self._now.eq(cycles[self._tick:]),
                     self._fine.eq(cycles[max(0, self._tick - FINE):self._tick])]
        m.d.sync += [
            cycles.eq(cycles + 1),
            limit.eq(deadline[self._tick:] + deadline[:self._tick].any()),
            self._overdue.eq(self._now - limit - 1),
        ]


def _count(x):
    """Byte Count as a number, 1 to 4096."""
    return Cat(x.byte_count, x.byte_count == 0)


def _end(x):
    """Bytes of a first or next completion and those before them in their dword."""
    return (_count(x) + x.lower_address[:2])[:13]
