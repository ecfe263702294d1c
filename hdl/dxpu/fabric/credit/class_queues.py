"""Queues of one direction, one for each row and class: whoever may not pass steps aside.

Ref: docs/explanation/flow-control.md; docs/reference/fabric-spec.md, queues and order
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.memory import DisjointMemory
from dxpu.priority import round_robin
from dxpu.rows import LIFE_BITS, UNIT_BITS, ClassMeta
from dxpu.stream import PacketLayout, PacketSignature, check_width
from dxpu.tlp.types import TlpClass

__all__ = ["ClassQueues", "ClassSpace"]


class ClassSpace:
    """Space of the queues of a row, in beats.

    Parameters
    ----------
    width : int
        Data bits per beat.
    p, np, cpl : int
        Bytes for each class.
    """

    def __init__(self, width, *, p, np, cpl):
        self.beats = tuple(max(4, -(-8 * size // check_width(width))) for size in (p, np, cpl))
        #: Of a row, and where each class begins.
        self.total = 1 << (sum(self.beats) - 1).bit_length()
        self.start = (0, self.beats[0], sum(self.beats[:2]))


class ClassQueues(wiring.Component):
    """A TLP that may pass goes straight through; others wait in the queue of their row and class.

    Who may pass is asked twice: about a TLP that comes (``i_ok``, with its first beat) and about
    one that waits (``head``, ``head_ok``). Nothing passes an older posted TLP of its row, or an
    older TLP of its row and class; all else passes what waits. Of the rows with TLPs that may leave
    each has as many beats in its turn (deficit round robin), and its classes take turns. What waits
    and what comes take turns, too.

    TLPs are stored whole, those that end with ``discard`` leave no trace in the queues (one that
    goes straight through keeps it). A TLP that finds its queue full waits, and all behind it, or is
    dropped and counted, as ``overflow`` says; one larger than its queue is always dropped.

    After reset it takes four cycles for each row until TLPs are taken. No latency for a TLP that
    goes straight through; for one that waits about eight cycles from when it may leave. Throughput
    a beat per cycle; TLPs from the queues have seven cycles between them.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows, 1 to 63.
    space : :class:`ClassSpace`
    overflow : "wait" or "drop"

    Members
    -------
    i, o : packet stream with meta :class:`~dxpu.rows.ClassMeta`
    i_ok : 1
        The TLP on ``i`` may pass now.
    head, head_valid : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP that waits, about which ``head_ok`` is to be said in the same cycle. With ``head_ok``
        it leaves, after at most one TLP that comes.
    head_ok : 1
    wake : ``rows``
        Strobes: ask again about the TLPs of row n.
    straight : 1
        ``o`` shows a TLP that goes straight through.
    blocked : ``rows``
        Bit n: a posted TLP or a completion of row n waits, or is on its way into its queue.
    requests : array of numbers
        Non-posted TLPs of each row that wait.
    np_waits : ``rows``
        Bit n: a non-posted TLP of row n waits, or is on its way into its queue.
    np_room : ``rows``
        Bit n: the queue has room for :attr:`NP_MARGIN` more.
    moved : ``rows``
        Strobes: a posted TLP or a completion of row n that waited has left.
    stat_parked : 1
        Pulse: a TLP had to wait.
    stat_overflow : 1
        Pulse: a TLP was dropped.
    """

    #: TLPs that a queue holds.
    PACKETS = 16
    #: See ``np_room``.
    NP_MARGIN = 6
    #: Bytes of the largest non-posted TLP: prefixes, header, 32 bytes of data, digest.
    NP_BYTES = 68
    #: Bytes that a row may send in its turn: the largest TLP.
    QUANTUM = 552
    #: Bits of the number that tells whether a posted TLP came before another TLP. No more posted
    #: TLPs than half its range can pass a TLP that waits: the tracker's deadline, of 2**24 cycles
    #: at most, comes first. A record has 24 bytes at least, so no more than one leaves in 3 cycles;
    #: with more than 64 bits a cycle, one in each, hence ``WIDE_STAMP_BITS``.
    STAMP_BITS = 24
    WIDE_STAMP_BITS = 26

    def __init__(self, width, *, rows, space, overflow="wait"):
        if rows not in range(1, 64):
            raise ValueError(f"rows must be 1 to 63, not {rows!r}")
        if overflow not in ("wait", "drop"):
            raise ValueError(f"overflow must be 'wait' or 'drop', not {overflow!r}")
        self._width, self._rows, self._space = check_width(width), rows, space
        self._wait = overflow == "wait"
        if width > 64:
            self.STAMP_BITS = self.WIDE_STAMP_BITS
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "i_ok": In(1),
            "head": Out(ClassMeta),
            "head_valid": Out(1),
            "head_ok": In(1),
            "wake": In(rows),
            "straight": Out(1),
            "blocked": Out(rows),
            "requests": Out(data.ArrayLayout(range(self.PACKETS + 1), rows)),
            "np_waits": Out(rows),
            "np_room": Out(rows, init=(1 << rows) - 1),
            "moved": Out(rows),
            "stat_parked": Out(Counted("TLPs that had to wait for credits of the peer.")),
            "stat_overflow": Out(Counted("TLPs that found no room; dropped.")),
        })

    def elaborate(self, platform):
        m = Module()
        rows, space = self._rows, self._space
        beats = Shape.cast(range(max(space.beats) + 1)).width
        stored = {k: PacketLayout(self._width)[k].shape for k in ("data", "dwords", "last")}
        note = data.StructLayout({"units": UNIT_BITS, "life": LIFE_BITS, "older": self.STAMP_BITS})
        # What a queue has seen in all, modulo: written by one side, read by both.
        ends = data.StructLayout({"place": range(max(space.beats)), "beats": beats + 1,
                                  "packets": self.STAMP_BITS})
        m.submodules.memory = memory = DisjointMemory(
            shape=data.StructLayout(stored), depth=rows * space.total, init=[])
        m.submodules.notes = notes = Memory(shape=note, depth=4 * rows * self.PACKETS, init=[])
        m.submodules.tails = tails = Memory(shape=ends, depth=4 * rows, init=[])
        m.submodules.heads = heads = Memory(shape=ends, depth=4 * rows, init=[])
        self._ends, self._stored = ends, stored
        self._memory, self._notes, self._tails, self._heads = memory, notes, tails, heads

        #: Queue numbers are class and row: bit 4 * row + class.
        self._filled = Signal(4 * rows)
        self._filling = Signal(4 * rows)   # strobes: a packet is complete
        self._emptied = Signal(4 * rows)   # strobes: the last one left
        self._draining, self._passing, self._turn = Signal(), Signal(), Signal()
        self._requests_left = Signal(rows)  # strobes: a non-posted TLP left
        self._amount_left = Signal(range(max(space.beats) + 1))
        m.d.sync += self._filled.eq(self._filled & ~self._emptied | self._filling)
        self._clearing, self._clear = Signal(init=1), Signal(range(4 * rows))
        self._empty(m)
        drained = Signal.like(self.o.payload)
        drained_valid, drained_ready = Signal(), Signal()
        self._enter(m)
        self._leave(m, drained, drained_valid, drained_ready)

        o = self.o
        with m.If(self._draining):
            m.d.comb += [o.payload.eq(drained), o.valid.eq(drained_valid),
                         drained_ready.eq(o.ready)]
        with m.Else():
            m.d.comb += [o.payload.eq(self.i.payload), o.valid.eq(self.straight)]
        return m

    def _address(self, row, cls, place):
        start = Array(self._space.start)[Value.cast(cls)]
        return Cat((start + place)[:(self._space.total - 1).bit_length()], row)

    def _empty(self, m):
        """After reset the queues are made empty, one in each cycle."""
        with m.If(self._clearing):
            m.d.sync += [self._clear.eq(self._clear + 1),
                         self._clearing.eq(self._clear != 4 * self._rows - 1)]

    def _are_ahead(self, filled, cls):
        """Whether TLPs that are in the queues of a row may not be passed."""
        return filled[TlpClass.P.value] | filled.bit_select(cls, 1)

    def _are_gone(self, left, older):
        """Whether all of so many posted TLPs have left."""
        return ~(left - older)[self.STAMP_BITS - 1]

    def _is_full(self, used, depth, packets):
        return (used >= depth) | (packets >= self.PACKETS)

    def _enter(self, m):
        i, o, meta = self.i, self.o, self.i.payload.meta
        cls = Value.cast(meta.cls)
        queue = Signal(range(4 * self._rows))
        mine, ahead = Signal(4), Signal()
        m.d.comb += [
            queue.eq(Cat(cls, meta.row)),
            mine.eq(self._filled.word_select(meta.row, 4)),
            ahead.eq(self._are_ahead(mine, cls)),
        ]
        # Straight on, into the queue, or away: decided with the first beat, or as soon as may be.
        may, inside = Signal(), Signal()
        goes, parks, drops = Signal(), Signal(), Signal()      # decided before
        going, parking, dropping = Signal(), Signal(), Signal()  # now
        m.d.comb += may.eq(self.i_ok & ~ahead)
        with m.If(inside):
            m.d.comb += [going.eq(goes), parking.eq(parks), dropping.eq(drops)]
        with m.Elif(i.valid & ~self._clearing):
            m.d.comb += [going.eq(may & ~self._draining & ~self._turn), parking.eq(~may)]
        with m.If(i.valid):
            m.d.sync += [goes.eq(going), parks.eq(parking), drops.eq(dropping),
                         inside.eq(going | parking | dropping)]
            with m.If(i.ready & i.payload.last):
                m.d.sync += inside.eq(0)

        tail_read, tail_write = self._tails.read_port(domain="comb"), self._tails.write_port()
        head_read = self._heads.read_port(domain="comb")
        posted = self._tails.read_port(domain="comb")
        write, note = self._memory.write_port(), self._notes.write_port()
        tail, new = tail_read.data, tail_write.data
        depth = Signal(range(max(self._space.beats) + 1))
        amount = Signal.like(depth)            # beats of this packet so far
        place = Signal.like(Value.cast(tail.place))
        used, packets = Signal.like(tail.beats), Signal(range(2 * self.PACKETS))
        full, larger, entering = Signal(), Signal(), Signal()
        here = Signal.like(place)
        m.d.comb += [
            tail_read.addr.eq(queue), head_read.addr.eq(queue), tail_write.addr.eq(queue),
            posted.addr.eq(Cat(C(0, 2), meta.row)),
            depth.eq(Array(self._space.beats)[cls]),
            used.eq(tail.beats - head_read.data.beats + amount),
            packets.eq(tail.packets - head_read.data.packets),
            full.eq(self._is_full(used, depth, packets)),
            larger.eq(amount >= depth),
            entering.eq(i.valid & parking & ~full),
            here.eq(Mux(amount == 0, tail.place, place)),
            write.en.eq(entering),
            write.addr.eq(self._address(meta.row, cls, here)),
            *(write.data[k].eq(i.payload[k]) for k in self._stored),
            new.place.eq(Mux(here == depth - 1, 0, here + 1)),
            new.beats.eq(tail.beats + amount + 1),
            new.packets.eq(tail.packets + 1),
            note.addr.eq(Cat(tail.packets[:(self.PACKETS - 1).bit_length()], queue)),
            note.data.units.eq(meta.units), note.data.life.eq(meta.life),
            note.data.older.eq(posted.data.packets),
        ]
        m.d.comb += self._passing.eq(self.straight | inside & goes)
        with m.If(going):
            m.d.comb += [self.straight.eq(i.valid), i.ready.eq(o.ready)]
        with m.Elif(dropping):
            m.d.comb += [i.ready.eq(1), self.stat_overflow.eq(i.valid & i.payload.last)]
        with m.Elif(parking):
            m.d.comb += i.ready.eq(~full)
            with m.If(i.valid & full & (larger | (0 if self._wait else 1))):
                m.d.sync += [drops.eq(1), parks.eq(0), amount.eq(0)]
        with m.If(entering):
            m.d.sync += [place.eq(new.place), amount.eq(Mux(i.payload.last, 0, amount + 1))]
            with m.If(i.payload.last & ~i.payload.discard):
                m.d.comb += [
                    tail_write.en.eq(1), note.en.eq(1), self.stat_parked.eq(1),
                    self._filling.eq(1 << queue),
                ]

        with m.If(self._clearing):
            m.d.comb += [tail_write.en.eq(1), tail_write.addr.eq(self._clear), new.eq(0)]

        # What those who send may want to know.
        largest = -(-8 * self.NP_BYTES // self._width)
        most = max(0, self._space.beats[TlpClass.NP.value] - self.NP_MARGIN * largest)
        for n in range(self._rows):
            here_now = i.valid & parking & (meta.row == n)
            m.d.comb += self.blocked[n].eq(
                self._filled[4 * n + TlpClass.P.value] | self._filled[4 * n + TlpClass.CPL.value]
                | here_now & (cls != TlpClass.NP.value))
            came, left = self._filling[4 * n + TlpClass.NP.value], self._requests_left[n]
            kept = Signal.like(depth, name=f"np_beats{n}")
            m.d.sync += [
                self.requests[n].eq(self.requests[n] + came - left),
                kept.eq(kept + Mux(came, amount + 1, 0) - Mux(left, self._amount_left, 0)),
                self.np_room[n].eq((kept <= most) & (self.requests[n]
                                                     <= max(0, self.PACKETS - self.NP_MARGIN))),
            ]
            m.d.comb += self.np_waits[n].eq(
                self._filled[4 * n + TlpClass.NP.value] | here_now & (cls == TlpClass.NP.value))

    def _leave(self, m, o, o_valid, o_ready):
        rows = self._rows
        asleep = Signal(4 * rows)        # asked about in vain
        queue = Signal(range(4 * rows))
        awake, rows_awake = Signal(4 * rows), Signal(rows)
        read, note = self._memory.read_port(), self._notes.read_port()
        head_read, head_write = self._heads.read_port(domain="comb"), self._heads.write_port()
        tail_read = self._tails.read_port(domain="comb")
        posted = self._heads.read_port(domain="comb")
        head, new = head_read.data, head_write.data
        row, cls = Signal(range(rows)), Signal(2)
        allowed, gone, woken = Signal(), Signal(), Signal(rows)
        m.d.comb += [
            awake.eq(self._filled & ~asleep),
            rows_awake.eq(Cat(awake.word_select(n, 4).any() for n in range(rows))),
            queue.eq(Cat(cls, row)),
            head_read.addr.eq(queue), tail_read.addr.eq(queue), head_write.addr.eq(queue),
            posted.addr.eq(Cat(C(0, 2), row)),
            note.addr.eq(Cat(head.packets[:(self.PACKETS - 1).bit_length()], queue)),
            self.head.row.eq(row), self.head.cls.eq(cls), self.head.units.eq(note.data.units),
            self.head.life.eq(note.data.life),
            allowed.eq((cls == TlpClass.P.value)
                       | self._are_gone(posted.data.packets, note.data.older)),
            # A posted TLP that has left may let others go; they are asked about again.
            woken.eq(self.wake | Mux(gone & (cls == TlpClass.P.value), 1 << row, 0)),
        ]
        sleeps = Signal()
        m.d.sync += asleep.eq(
            (asleep | Mux(sleeps, 1 << queue, 0)) & ~Cat(w.replicate(4) for w in woken))

        place, amount = Signal.like(Value.cast(head.place)), Signal.like(head.beats)
        first = Signal(init=1)
        passed = Signal()  # one that came had its turn
        # Deficit round robin: a row goes on while it has beats left, and may overdraw.
        budgets = [Signal(signed(len(Value.cast(head.beats)) + 1), name=f"budget{n}")
                   for n in range(rows)]
        budget, chosen = Signal.like(budgets[0]), Signal(range(rows))
        quantum = -(-8 * self.QUANTUM // self._width)
        m.d.comb += budget.eq(Array(budgets)[row])
        for n in range(rows):
            with m.If(gone & (row == n)):
                m.d.sync += budgets[n].eq(budget - amount.as_signed())
        with m.FSM():
            with m.State("Pick"):
                m.d.comb += chosen.eq(round_robin(rows_awake, row))
                with m.If(rows_awake.any()):
                    m.next = "Class"
                    with m.If(~rows_awake.bit_select(row, 1) | (budget <= 0)):
                        m.d.sync += row.eq(chosen)
                        for n in range(rows):
                            with m.If(chosen == n):
                                m.d.sync += budgets[n].eq(
                                    Mux(budgets[n] > 0, 0, budgets[n]) + quantum)
            with m.State("Class"):
                m.d.sync += cls.eq(round_robin(awake.word_select(row, 4), cls))
                m.next = "Look"
            with m.State("Look"):
                m.next = "Ask"
            with m.State("Ask"):
                m.d.comb += [self.head_valid.eq(allowed),
                             self._turn.eq(allowed & self.head_ok & passed)]
                with m.If(~allowed | ~self.head_ok):
                    m.d.comb += sleeps.eq(1)
                    m.next = "Pick"
                with m.Elif(~self._passing & (passed | ~self.i.valid)):
                    m.d.sync += [self._draining.eq(1), place.eq(head.place), amount.eq(0),
                                 passed.eq(0)]
                    m.next = "Move"
                with m.Elif(~self._passing | self.o.ready & self.i.payload.last):
                    m.d.sync += passed.eq(1)
            with m.State("Move"):
                with m.If(gone):
                    m.d.sync += self._draining.eq(0)
                    m.next = "Pick"

        depth = Array(self._space.beats)[cls]
        move = Signal()
        m.d.comb += [
            move.eq(self._draining & (~o_valid | o_ready & ~o.last)),
            read.en.eq(move),
            read.addr.eq(self._address(row, cls, place)),
            *(o[k].eq(read.data[k]) for k in self._stored),
            o.first.eq(first),
            o.meta.eq(self.head),
            gone.eq(o_valid & o_ready & o.last),
            head_write.en.eq(gone),
            new.place.eq(place),
            new.beats.eq(head.beats + amount),
            new.packets.eq(head.packets + 1),
        ]
        with m.If(self._clearing):
            m.d.comb += [head_write.en.eq(1), head_write.addr.eq(self._clear), new.eq(0)]
        with m.If(o_valid & o_ready):
            m.d.sync += [o_valid.eq(0), first.eq(o.last)]
        with m.If(move):
            m.d.sync += [o_valid.eq(1), amount.eq(amount + 1),
                         place.eq(Mux(place == depth - 1, 0, place + 1))]
        with m.If(gone & (new.packets == tail_read.data.packets)):
            m.d.comb += self._emptied.eq(1 << queue)
        m.d.comb += [
            self._requests_left.eq(Mux(gone & (cls == TlpClass.NP.value), 1 << row, 0)),
            self._amount_left.eq(amount),
            self.moved.eq(Mux(gone & (cls != TlpClass.NP.value), 1 << row, 0)),
        ]
