"""Queues of one direction, one for each row and class: whoever may not pass steps aside.

This file only wires. Ref: docs/explanation/flow-control.md; docs/reference/fabric-spec.md, queues
and order
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.memory import DisjointMemory
from dxpu.rows import LIFE_BITS, UNIT_BITS, ClassMeta
from dxpu.stage import Fill, counted_fill
from dxpu.stream import PacketLayout, PacketSignature, check_width, connect
from dxpu.tlp.types import TlpClass

from .queues.departure import Departure
from .queues.parking import Parking
from .queues.queue_ends import QueueEnds
from .queues.queue_flags import QueueFlags
from .queues.queue_turns import QueueTurns
from .queues.request_room import RequestRoom

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

    Each TLP is checked: with its first beat when it comes, and at the head of its queue if it
    waits. One is checked in a cycle, heads first. Nothing passes an older posted TLP of its row, or
    an older TLP of its row and class; all else passes what waits. Of the rows with TLPs that may
    leave each has as many beats in its turn (deficit round robin), and its classes take turns. What
    waits and what comes take turns, too.

    TLPs are stored whole, those that end with ``discard`` leave no trace in the queues (one that
    goes straight through keeps it). A TLP that finds its queue full waits, and all behind it, or is
    dropped and counted, as ``overflow`` says; one larger than its queue is always dropped.

    After reset it takes four cycles for each row until TLPs are taken. No latency for a TLP that
    goes straight through, a beat per cycle; two more if a head is checked when it begins. One that
    waits takes a cycle more than its beats to enter its queue, and leaves some eight cycles
    after it may. TLPs from the queues have seven cycles between the last beat of one and the first
    of the next, or none if both are of one queue, not non-posted, and the first one is long enough.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows, 1 to 63.
    space : :class:`ClassSpace`
    overflow : "wait" or "drop"
    largest : int, optional
        Data units of the largest TLP that waits; of a larger one ``units`` is lost.
    packets : int, optional
        TLPs that a queue holds, a power of two; :attr:`PACKETS` by default.

    Members
    -------
    i, o : packet stream with meta :class:`~dxpu.rows.ClassMeta`
    checked, ok : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP, on ``i`` or at the head of a queue, that a decision may depend on; whether it may
        leave, in the next cycle.
    sure : 1
        The TLP on ``i`` may leave; 0: that is not known yet.
    consumed : 1
        Strobe: ``checked`` takes what it was checked for. One on ``i`` does with its last beat; one
        that waited does in the cycle before its first beat, in which no other TLP begins.
    wake : ``rows``
        Strobes: ``ok`` may become true for a TLP of row n that is checked in this cycle, or in the
        next one.
    blocked : ``rows``
        Bit n: a posted TLP or a completion of row n waits, or is on its way into its queue.
    np_waits : ``rows``
        Bit n: a non-posted TLP of row n waits, or is on its way into its queue.
    np_room : ``rows``
        Bit n: the queue has room for :attr:`NP_MARGIN` more.
    moved : ``rows``
        Strobes: a posted TLP or a completion of row n that waited has left.
    left : 1
        Pulse: a TLP that had to wait has left its queue.
    stat_parked : 1
        Pulse: a TLP had to wait.
    stat_overflow : 1
        Pulse: a TLP was dropped.
    """

    #: TLPs that a queue holds, if nobody says otherwise.
    PACKETS = 16
    #: See ``np_room``.
    NP_MARGIN = 6
    #: Bytes of the largest non-posted TLP (prefixes, header, 32 bytes of data, digest), and of the
    #: smallest.
    NP_BYTES, NP_LEAST = 68, 12
    #: Bytes that a row may send in its turn: the largest TLP.
    QUANTUM = 552
    #: Bits of the number that tells whether a posted TLP came before another TLP. No more posted
    #: TLPs than half its range can leave the queues while a TLP waits: the tracker's deadline, of
    #: less than 2**24 cycles, comes first. From one TLP to the next there are eight cycles if each
    #: has two beats at least: one that another follows at once has eight beats (``AHEAD_FROM``).
    #: With more than 64 bits it has three, hence ``WIDE_STAMP_BITS``.
    STAMP_BITS = 22
    WIDE_STAMP_BITS = 24
    #: Beats of a TLP that were read when the next one is looked at; two cycles later is decided
    #: whether that follows.
    AHEAD_FROM = 6
    WIDE_AHEAD_FROM = 1
    #: Queues are made empty after a reset, not only with the FPGA's configuration.
    SWEEPS = True

    def __init__(self, width, *, rows, space, overflow="wait", largest=None,
                 packets=None):
        if rows not in range(1, 64):
            raise ValueError(f"rows must be 1 to 63, not {rows!r}")
        if overflow not in ("wait", "drop"):
            raise ValueError(f"overflow must be 'wait' or 'drop', not {overflow!r}")
        self._width, self._rows, self._space = check_width(width), rows, space
        self._drops = overflow == "drop"
        self._units = UNIT_BITS if largest is None else largest.bit_length()
        if packets is not None:
            self.PACKETS = packets
        if width > 64:
            self.STAMP_BITS, self.AHEAD_FROM = self.WIDE_STAMP_BITS, self.WIDE_AHEAD_FROM
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "checked": Out(ClassMeta),
            "sure": In(1),
            "ok": In(1),
            "consumed": Out(1),
            "wake": In(rows),
            "blocked": Out(rows),
            "np_waits": Out(rows),
            "np_room": Out(rows, init=(1 << rows) - 1),
            "moved": Out(rows),
            "left": Out(1),
            "stat_parked": Out(Counted("TLPs that had to wait for credits of the peer.")),
            "stat_overflow": Out(Counted("TLPs that found no room; dropped.")),
        })

    def fill(self, text: str) -> Fill:
        """How many TLPs are in the queues (:class:`~dxpu.stage.Fill`)."""
        return counted_fill(self.stat_parked, self.left, 3 * self._rows * self.PACKETS, text)

    def elaborate(self, platform):
        m = Module()
        rows, space, layout = self._rows, self._space, PacketLayout(self._width)
        sizes = dict(rows=rows, space=space, packets=self.PACKETS, stamp=self.STAMP_BITS)
        shapes = dict(
            beat=data.StructLayout({k: layout[k].shape for k in ("data", "dwords", "last")}),
            note=data.StructLayout({
                "units": self._units, "life": LIFE_BITS, "older": self.STAMP_BITS}))
        m.submodules.memory = memory = DisjointMemory(
            shape=shapes["beat"], depth=rows * space.total, init=[])
        m.submodules.notes = notes = DisjointMemory(
            shape=shapes["note"], depth=4 * rows * self.PACKETS, init=[])
        m.submodules.ends = ends = QueueEnds(**sizes)
        m.submodules.flags = flags = QueueFlags(rows=rows)
        m.submodules.parking = parking = Parking(
            self._width, **sizes, **shapes, drops=self._drops)
        m.submodules.turns = turns = QueueTurns(
            rows=rows, quantum=-(-8 * self.QUANTUM // self._width), largest=max(space.beats),
            sweeps=self.SWEEPS)
        m.submodules.departure = departure = Departure(
            self._width, **sizes, **shapes, ahead_from=self.AHEAD_FROM)

        connect(m, wiring.flipped(self.i), parking.i)
        wiring.connect(m, parking.ends, ends.enter)
        wiring.connect(m, departure.ends, ends.leave)
        for agent, ports in ((parking, (memory.write_port(), notes.write_port())),
                             (departure, (memory.read_port(), notes.read_port()))):
            wiring.connect(m, agent.beats, ports[0])
            wiring.connect(m, agent.notes, ports[1])
        dequeued, straight = departure.ends.strobe, parking.o
        m.d.comb += [
            self.checked.eq(Mux(departure.checking, departure.head.as_value(),
                                self.i.payload.meta.as_value())),
            parking.sure.eq(self.sure), parking.ok.eq(self.ok), departure.ok.eq(self.ok),
            self.consumed.eq(departure.claim | straight.valid & straight.ready
                             & straight.payload.last & ~straight.payload.discard),
            parking.filled.eq(flags.filled), parking.hold.eq(departure.draining),
            parking.stop.eq(turns.clear | departure.checking),
            ends.clear.eq(turns.clear),
            flags.parked.eq(parking.ends.strobe), flags.parked_queue.eq(parking.ends.queue),
            flags.emptied.eq(departure.emptied), flags.refused.eq(departure.refused),
            flags.dequeued_queue.eq(departure.ends.queue), flags.wake.eq(self.wake),
            # A posted TLP that has left may let others go; they are asked about again.
            flags.passed.eq(dequeued & (turns.cls == TlpClass.P.value)),
            turns.awake.eq(flags.awake), turns.done.eq(departure.done),
            turns.beat_read.eq(departure.beat_read),
            departure.row.eq(turns.row), departure.cls.eq(turns.cls),
            departure.granted.eq(turns.granted), departure.goes_on.eq(turns.goes_on),
            departure.passing.eq(parking.passing),
            self.stat_parked.eq(parking.ends.strobe),
            self.left.eq(dequeued),
            self.stat_overflow.eq(parking.stat_overflow),
        ]
        self._show(m, flags, parking, turns, departure)
        o = self.o
        m.d.comb += [
            o.payload.eq(Mux(departure.draining, departure.o.payload.as_value(),
                             straight.payload.as_value())),
            o.valid.eq(departure.o.valid | straight.valid),
            departure.o.ready.eq(o.ready), straight.ready.eq(o.ready),
        ]
        return m

    def _show(self, m, flags, parking, turns, departure):
        """What those who send may want to know."""
        rows, depth = self._rows, self._space.beats[TlpClass.NP.value]
        largest, least = (-(-8 * size // self._width) for size in (self.NP_BYTES, self.NP_LEAST))
        m.submodules.request_room = room = RequestRoom(
            rows=rows, beats=depth, most=max(0, min(
                depth - self.NP_MARGIN * largest, least * (self.PACKETS - self.NP_MARGIN))))
        dequeued, is_np = departure.ends.strobe, turns.cls == TlpClass.NP.value
        filled = [Cat(flags.filled[4 * row + n] for row in range(rows)) for n in range(3)]
        m.d.comb += [
            room.parked.eq(parking.ends.strobe & parking.requests),
            room.parked_row.eq(parking.ends.queue[2:]), room.parked_beats.eq(parking.amount),
            room.dequeued.eq(dequeued & is_np),
            room.dequeued_row.eq(turns.row), room.dequeued_beats.eq(departure.amount),
            room.clear.eq(turns.clear),
            self.np_room.eq(room.room),
            self.blocked.eq(filled[TlpClass.P.value] | filled[TlpClass.CPL.value]
                            | Mux(parking.requests, 0, parking.parks)),
            self.np_waits.eq(filled[TlpClass.NP.value]
                             | Mux(parking.requests, parking.parks, 0)),
            self.moved.eq(Mux(dequeued & ~is_np, 1 << turns.row, 0)),
        ]
