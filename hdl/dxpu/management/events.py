"""What a node has to say by itself: changes of links, sessions, slots, and errors.

Ref: docs/reference/management.md, "Events"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.session.types import SessionNews
from dxpu.fabric.wire.frame_fields import wire
from dxpu.queue import Queue
from dxpu.stream import ForwardRegister, connect

from .format import Subject

__all__ = ["EventWord", "NodeEvents", "SlotState"]

#: Events that wait for a manager; as many fill a block RAM.
DEPTH = 512


class EventWord(data.Struct):
    """An event. The first byte of its frame is in the lowest bits."""

    code: 8
    where: 8
    zero: 16
    argument: 32


class SlotState(data.Struct):
    """State of the slot of a row.

    Members
    -------
    bound, present, open : 1
        There is a binding; there is a GPU, or a host sees one; TLPs may pass.
    marked : 1
        Of a host: the card was lost. Of a box: the GPU must be scrubbed.
    """

    bound: 1
    present: 1
    open: 1
    marked: 1


#: What waits in the queue; ``argument`` are its bits 0 to 15, 30 and 31.
class _Waiting(data.Struct):
    subject: Subject
    where: 8
    argument: 16
    top: 2


class NodeEvents(wiring.Component):
    """Notes what changes, and keeps it until a manager was told.

    Paths, slots and errors are looked at one after the other, each in every ``paths + rows + 1``
    cycles; a state that lasts less may not be noticed. The event has the state at the moment when
    there is room for it. What changed again before that is told in one event. Sessions tell of
    themselves; what finds no room is not told. Both are counted, and once there is room an event
    LOST has the number of those since the last LOST.

    An event is offered 3 cycles after a session has told of itself. All that is looked at, and the
    event, are in registers, so that neither the datapath nor who takes events waits for this part.

    Parameters
    ----------
    paths, rows : int
    depth : int
        Least number of events that wait.

    Members
    -------
    links : ``paths``
        Bit n: path n has a link.
    slots : array of :class:`SlotState`
        Of each row.
    failed : 1
        The noise has failed a test.
    news : :class:`~dxpu.fabric.session.types.SessionNews`
    o : stream of :class:`EventWord`
    stat_untold : 1
        Pulse.
    """

    def __init__(self, *, paths, rows, depth=DEPTH):
        self._paths, self._rows, self._depth = paths, rows, depth
        super().__init__({
            "links": In(paths),
            "slots": In(data.ArrayLayout(SlotState, rows)),
            "failed": In(1),
            "news": In(SessionNews),
            "o": Out(stream.Signature(EventWord)),
            "stat_untold": Out(Counted(
                "Changes that have no event of their own, as too many events waited.")),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Queue(_Waiting, depth=self._depth)
        paths, count = self._paths, self._paths + self._rows + 1
        links, slots, failed = (Signal.like(now) for now in (self.links, self.slots, self.failed))
        m.d.sync += [links.eq(self.links), slots.eq(self.slots), failed.eq(self.failed)]
        sources = [
            *((Subject.PATH, n, links[n]) for n in range(paths)),
            *((Subject.SLOT, n, slots[n].as_value()) for n in range(self._rows)),
            (Subject.ERROR, 0, failed),
        ]
        # Each in turn: its state now and when it was looked at, and whether it owes an event.
        number = Signal(range(count))
        m.submodules.seen = seen = Memory(shape=5, depth=count, init=[])
        read, write = seen.read_port(domain="comb"), seen.write_port()
        state, before, owes = Signal(4), Signal(4), Signal()
        changed, untold, told = Signal(), Signal(), Signal()
        subject, where = Signal(Subject), Signal(8)
        with m.Switch(number):
            for n, (what, which, value) in enumerate(sources):
                with m.Case(n):
                    m.d.comb += [subject.eq(what), where.eq(which), state.eq(value)]
        lost, news, word = Signal(16), self.news, queue.i.payload
        turn = Signal()
        m.d.comb += [
            read.addr.eq(number), Cat(before, owes).eq(read.data),
            changed.eq(state != before), turn.eq(~news.strobe),
            told.eq(turn & (lost == 0) & (changed | owes) & queue.i.ready),
            write.addr.eq(number), write.en.eq(turn),
            write.data.eq(Cat(state, (changed | owes) & ~told)),
            untold.eq(turn & changed & owes | news.strobe & ~queue.i.ready),
            queue.i.valid.eq(news.strobe | (lost != 0) | told),
        ]
        with m.If(turn):
            m.d.sync += number.eq(Mux(number == count - 1, 0, number + 1))
        m.d.sync += self.stat_untold.eq(untold)
        with m.If(news.strobe):
            m.d.comb += [word.subject.eq(Subject.SESSION), word.argument.eq(news.session),
                         word.top.eq(Cat(news.ended, news.opened))]
        with m.Elif(lost != 0):
            m.d.comb += [word.subject.eq(Subject.LOST), word.argument.eq(lost)]
        with m.Else():
            m.d.comb += [word.subject.eq(subject), word.where.eq(where), word.argument.eq(state)]
        with m.If(~news.strobe & (lost != 0) & queue.i.ready):
            m.d.sync += lost.eq(untold)
        with m.Elif(untold & ~lost.all()):
            m.d.sync += lost.eq(lost + 1)

        m.submodules.register = register = ForwardRegister(_Waiting)
        connect(m, queue.o, register.i)
        waiting, event = register.o.payload, self.o.payload
        m.d.comb += [
            event.code.eq(waiting.subject), event.where.eq(waiting.where),
            event.argument.eq(wire(Cat(waiting.argument, Const(0, 14), waiting.top), 4)),
            self.o.valid.eq(register.o.valid), register.o.ready.eq(self.o.ready),
        ]
        return m
