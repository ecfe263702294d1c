"""The last events of a proxy, with their times, in a block RAM.

Ref: docs/reference/observe.md, "Events"
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.csr import Access, Field, Register, Rows
from dxpu.memory import DisjointMemory
from dxpu.priority import encode, lowest_bit

__all__ = ["DEPTH", "TIME_BITS", "TIME_UNIT", "EventKind", "EventLog", "LoggedWord", "Pulses",
           "event_rows", "log_registers"]

#: Entries of a log: as many fill a block RAM.
DEPTH = 256
#: Cycles of a unit of time, and bits of a time.
TIME_UNIT, TIME_BITS = 16, 40
#: Cycles in which a counter's event has one entry at most.
QUIET = 1 << 20


class EventKind(enum.IntEnum, shape=8):
    """What has happened, and what the argument of the event is."""

    #: A pulse of a counter; the counter's number, from 0 in the block `counters`.
    COUNTED = 0
    #: A register was written; its byte address.
    WRITTEN = 1
    #: A row of the mapping table was bound, was released, or changed otherwise; the row.
    BOUND = 2
    RELEASED = 3
    CHANGED = 4
    #: A session was opened by HELLO, has ended, has ended and was opened again; its number.
    OPENED = 5
    ENDED = 6
    REOPENED = 7
    #: A path has a link, or has none; the path.
    LINK_UP = 8
    LINK_DOWN = 9
    #: A request was open for longer than the deadline; the row.
    OVERDUE = 10
    #: A slot was fenced, as what came had no credits or its card was lost; the row.
    FENCED = 11


class LoggedWord(data.Struct):
    """An event with an argument.

    Members
    -------
    strobe : 1
    kind : EventKind
    argument : 16
        As the kind says.
    """

    strobe: 1
    kind: EventKind
    argument: 16


@dataclass(frozen=True)
class Pulses:
    """Events that are pulses.

    Parameters
    ----------
    kind : EventKind
    arguments : tuple of int
        Argument of each.
    quiet : bool
        One that was noted is not noted again for a time.
    """

    kind: EventKind
    arguments: tuple
    quiet: bool = False


def log_registers(address: int) -> tuple:
    """Descriptions of the registers of a log, from a byte address on."""
    return (
        Register("log", (
            Field("frozen", 1, Access.RW, doc="Nothing is noted, so that entries stay; what "
                  "happens meanwhile has no entry."),
            Field("lost", 16, "ro", offset=16, doc="Cycles in which an event was lost: the log was "
                  "frozen, or one of its kind waited to be noted. Stays at 65,535.")),
            "State of the log.", address=address),
        Register("recorded", (Field("count", 32, "ro", doc=f"Events noted since reset; wraps. "
                 f"Event n is in entry n modulo {DEPTH}. Read it before and after the entries: "
                 f"event n was overwritten if the second value is n + {DEPTH} or more."),),
                 "Number of events."),
        Register("now_low", (Field("time", 32, "ro", doc="Bits 31:0. Read `now_high` before and "
                 "after."),), f"Time since reset in units of {TIME_UNIT} cycles."),
        Register("now_high", (Field("time", 8, "ro", doc="Bits 39:32."),), "The same."),
    )


def event_rows(address: int) -> Rows:
    """Description of the entries of a log."""
    return Rows("event", DEPTH, (
        Register("time", (Field("low", 32, Access.MEM, doc="Time of the event, bits 31:0."),),
                 "Time."),
        Register("what", (
            Field("high", 8, Access.MEM, doc="Time of the event, bits 39:32."),
            Field("kind", 8, Access.MEM, values=EventKind, doc="Kind of the event."),
            Field("argument", 16, Access.MEM, doc="A number, as the kind says.")),
            "What has happened."),
    ), f"The last {DEPTH} events.", address=address)


class EventLog(wiring.Component):
    """Notes events one after the other, and keeps the last :data:`DEPTH`.

    An event waits until it is noted; words go first, in their order, then pulses in theirs. Each
    takes four cycles, and five while entries are read. Its time is that of the cycle in which its
    turn comes, two cycles after it happened if no other waits. A word whose source has one waiting
    is lost, as are pulses, but quiet ones: these are noted once in each period of ``quiet`` cycles,
    and not lost, as their counter has them.

    Parameters
    ----------
    words : int
        Sources of words.
    pulses : sequence of :class:`Pulses`
    quiet : int
        Cycles, a power of two.

    Members
    -------
    words : array of :class:`LoggedWord`
    pulses : bits of all ``pulses``, the first one's lowest
    frozen : 1
        Nothing is noted, and what happens is lost.
    recorded, losses, now : 32, 16, 40
        Events noted; cycles in which an event was lost, 65,535 at most; time.
    address, request, read_data, done
        Access to a word of an entry, as of :class:`~dxpu.csr.RegisterFile` without its ``mem_``.
        Byte address, from that of the entries. Done within six cycles.
    """

    def __init__(self, *, words, pulses=(), quiet=QUIET):
        self._pulses = [(group.kind, argument, group.quiet)
                        for group in pulses for argument in group.arguments]
        self._quiet = exact_log2(quiet)
        super().__init__({
            "words": In(LoggedWord).array(words),
            "pulses": In(len(self._pulses)),
            "frozen": In(1),
            "recorded": Out(32), "losses": Out(16), "now": Out(TIME_BITS),
            "address": In(16), "request": In(1), "read_data": Out(32), "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        count = len(self.words)
        m.submodules.entries = entries = DisjointMemory(shape=32, depth=2 * DEPTH, init=[])
        read, write = entries.read_port(), entries.write_port()
        cycles = Signal(TIME_BITS + exact_log2(TIME_UNIT))
        m.d.sync += cycles.eq(cycles + 1)
        m.d.comb += self.now.eq(cycles[exact_log2(TIME_UNIT):])

        # What waits: first all words, then all pulses. Of a pulse the rest follows from its place.
        total = count + len(self._pulses)
        words = [Signal(data.StructLayout({"kind": EventKind, "argument": 16}), name=f"word{n}")
                 for n in range(count)]
        waiting, noted, resting = (Signal(total, name=name)
                                   for name in ("waiting", "noted", "resting"))
        came, kept, lost = (Signal(total, name=name) for name in ("came", "kept", "lost_now"))
        quiet = C(sum(1 << n for n, (*_, once) in enumerate(self._pulses, count) if once), total)
        # Many events are known late in a cycle.
        m.d.sync += came.eq(Cat(*(word.strobe for word in self.words), self.pulses))
        for n, (word, source) in enumerate(zip(words, self.words, strict=True)):
            arrived = Signal(word.shape(), name=f"arrived{n}")
            m.d.sync += [arrived.kind.eq(source.kind), arrived.argument.eq(source.argument)]
            with m.If(kept[n]):
                m.d.sync += word.eq(arrived)
        free = ~waiting | noted
        m.d.comb += [
            kept.eq(came & free & ~resting & ~self.frozen.replicate(total)),
            lost.eq(came & ~kept & ~quiet),
        ]
        m.d.sync += waiting.eq(waiting & ~noted | kept)
        anew = Signal()
        m.d.comb += anew.eq(cycles[:self._quiet].all())
        m.d.sync += resting.eq(Mux(anew, 0, resting | noted) & quiet)
        with m.If(lost.any() & ~self.losses.all()):
            m.d.sync += self.losses.eq(self.losses + 1)

        chosen, number = Signal(total), Signal(range(total))
        kind, argument, time = Signal(8), Signal(16), Signal(TIME_BITS)
        with m.Switch(number):
            for n, word in enumerate(words):
                with m.Case(n):
                    m.d.comb += [kind.eq(word.kind), argument.eq(word.argument)]
            for n, (of, which, _) in enumerate(self._pulses, count):
                with m.Case(n):
                    m.d.comb += [kind.eq(of.value), argument.eq(which)]

        m.d.comb += [
            write.addr.eq(Cat(C(0, 1), self.recorded)), write.data.eq(time[:32]),
            read.addr.eq(self.address[2:]), read.en.eq(0), self.read_data.eq(read.data),
        ]
        answered = Signal()
        m.d.sync += answered.eq(0)
        m.d.comb += self.done.eq(answered)
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.request & ~answered):
                    m.d.comb += read.en.eq(1)
                    m.d.sync += answered.eq(1)
                with m.Elif(waiting.any()):
                    m.d.sync += [chosen.eq(lowest_bit(waiting)), time.eq(self.now)]
                    m.next = "Number"
            with m.State("Number"):
                m.d.sync += number.eq(encode(chosen))
                m.next = "Time"
            with m.State("Time"):
                m.d.comb += write.en.eq(1)
                m.next = "What"
            with m.State("What"):
                m.d.comb += [
                    write.en.eq(1), write.addr[0].eq(1),
                    write.data.eq(Cat(time[32:], kind, argument)),
                    noted.eq(chosen),
                ]
                m.d.sync += self.recorded.eq(self.recorded + 1)
                m.next = "Idle"
        return m
