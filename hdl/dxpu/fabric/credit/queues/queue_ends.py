"""Where the queues of a direction begin and end, and how many posted TLPs of each row passed them.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import TlpClass

__all__ = ["EndsSignature", "QueueEnds", "by_class", "following", "low_bits", "queue_number"]


def low_bits(row, rows):
    """The bits of a row number that distinguish the numbers of ``rows`` rows."""
    return row[:max(1, (rows - 1).bit_length())]


def queue_number(row, cls):
    """Number of the queue of a row and class: 4 * row + class."""
    return Cat(Value.cast(cls), row)


def by_class(values, cls):
    """The constant of a class, of three."""
    cls = Value.cast(cls)
    width = Shape.cast(range(max(values) + 1)).width
    p, np, cpl = (Const(value, width) for value in values)
    return Mux(cls[1], cpl, Mux(cls[0], np, p))


def following(space, place, cls):
    """The place after ``place`` in the ring of a class."""
    last = by_class([a + b - 1 for a, b in zip(space.start, space.beats, strict=True)], cls)
    return Mux(place == last, by_class(space.start, cls), place + 1)[:len(place)]


class EndsSignature(wiring.Signature):
    """Access to the ends of one queue, by the agent that moves one of them.

    Parameters
    ----------
    rows, total, packets, stamp : int
        Of :class:`QueueEnds`; ``total`` is that of the space.

    Members
    -------
    queue : number of a queue
    tail, head : struct of ``place``, ``packet``
        Ends of the queue, in the same cycle: the place of the next beat that enters or leaves, and
        the number of the packet, modulo.
    posted : ``stamp``
        Posted TLPs of the row that have passed the agent's end, modulo.
    next, strobe : place, 1
        A packet has passed the agent's end, which is ``next`` from the next cycle on.
    """

    def __init__(self, *, rows, total, packets, stamp):
        end = data.StructLayout({"place": range(total), "packet": range(packets)})
        super().__init__({
            "queue": Out(range(4 * rows)),
            "tail": In(end),
            "head": In(end),
            "posted": In(stamp),
            "next": Out(range(total)),
            "strobe": Out(1),
        })
        self.end = end


class QueueEnds(wiring.Component):
    """Heads and tails of the queues, in distributed RAM.

    A queue whose ends are alike is empty or full; which of the two is not known here. What is
    looked up is there in the same cycle; what is written, in the next one.

    Parameters
    ----------
    rows : int
    space : :class:`~dxpu.fabric.credit.class_queues.ClassSpace`
    packets : int
        Packets that a queue holds, a power of two.
    stamp : int
        Bits of the counts of posted TLPs.

    Members
    -------
    enter, leave : :class:`EndsSignature`
        For the agent that moves the tails, and the one that moves the heads.
    clear : 1
        Strobe: the queue on ``leave`` becomes empty, and the counts of its row 0.
    """

    def __init__(self, *, rows, space, packets, stamp):
        side = EndsSignature(rows=rows, total=space.total, packets=packets, stamp=stamp)
        self._rows, self._space, self._end, self._stamp = rows, space, side.end, stamp
        super().__init__({"enter": In(side), "leave": In(side), "clear": In(1)})

    def elaborate(self, platform):
        m = Module()
        for name, mine, other in (("tail", self.enter, self.leave),
                                  ("head", self.leave, self.enter)):
            self._end_of(m, name, mine, other)
            self._count(m, name, mine)
        return m

    def _written(self, side):
        """The queue of which an end is written."""
        return Mux(self.clear, self.leave.queue, side.queue)

    def _end_of(self, m, name, mine, other):
        """One of the ends, moved by one side, read by both."""
        m.submodules[name] = memory = Memory(
            shape=self._end, depth=4 * self._rows,
            init=[{"place": start} for start in (*self._space.start, 0)] * self._rows)
        write, clear = memory.write_port(), self.clear
        for side in (mine, other):
            read = memory.read_port(domain="comb")
            m.d.comb += [read.addr.eq(side.queue), getattr(side, name).eq(read.data)]
        queue = self._written(mine)
        m.d.comb += [
            write.en.eq(mine.strobe | clear), write.addr.eq(queue),
            write.data.place.eq(Mux(clear, by_class(self._space.start, queue[:2]), mine.next)),
            write.data.packet.eq(Mux(clear, 0, getattr(mine, name).packet + 1)),
        ]

    def _count(self, m, name, side):
        """Posted TLPs of each row."""
        m.submodules[f"posted_{name}"] = memory = Memory(
            shape=self._stamp, depth=self._rows, init=[])
        read, write = memory.read_port(domain="comb"), memory.write_port()
        m.d.comb += [
            read.addr.eq(side.queue[2:]), side.posted.eq(read.data),
            write.addr.eq(self._written(side)[2:]),
            write.en.eq(side.strobe & (side.queue[:2] == TlpClass.P.value) | self.clear),
            write.data.eq(Mux(self.clear, 0, read.data + 1)),
        ]
