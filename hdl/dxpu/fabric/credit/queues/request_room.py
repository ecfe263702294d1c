"""Room for non-posted TLPs, told in advance.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["RequestRoom"]


class RequestRoom(wiring.Component):
    """Counts beats of each row's non-posted TLPs that wait.

    ``room`` follows two cycles later, or three. Strobes of ``parked`` have a cycle between them,
    those of ``dequeued`` more.

    Parameters
    ----------
    rows : int
    beats : int
        Of the queue.
    most : int
        Beats in the queue with which there is room.

    Members
    -------
    parked, parked_row, parked_beats : 1, number, beats
        A TLP has entered the queue.
    dequeued, dequeued_row, dequeued_beats : 1, number, beats
        A TLP has left it. Row and beats stay for another cycle.
    clear : 1
        The queue of ``dequeued_row`` is empty.
    room : ``rows``
        Bit n: the queue of row n has room.
    """

    def __init__(self, *, rows, beats, most):
        self._rows, self._most = rows, most
        super().__init__({
            "parked": In(1), "parked_row": In(range(rows)), "parked_beats": In(range(beats + 1)),
            "dequeued": In(1), "dequeued_row": In(range(rows)),
            "dequeued_beats": In(range(beats + 1)),
            "clear": In(1),
            "room": Out(rows, init=(1 << rows) - 1),
        })

    def elaborate(self, platform):
        m = Module()
        shape = self.dequeued_beats.shape()
        m.submodules.used = used = Memory(shape=shape, depth=self._rows, init=[])
        read, write = used.read_port(domain="comb"), used.write_port()
        late, subtracts, new = Signal(), Signal(), Signal(shape)
        change = Mux(self.parked, self.parked_beats, ~self.dequeued_beats)
        # The row is held for what is compared a cycle later.
        counted, row, beats = Signal(), Signal.like(self.dequeued_row), Signal(shape)
        m.d.comb += [
            # Both at once: one leaves a cycle later.
            subtracts.eq(~self.parked & (self.dequeued | late)),
            read.addr.eq(Mux(self.parked, self.parked_row, self.dequeued_row)),
            write.addr.eq(read.addr),
            write.en.eq(self.parked | subtracts | self.clear),
            new.eq(read.data + change[:len(new)] + ~self.parked),
            write.data.eq(Mux(self.clear, 0, new)),
        ]
        m.d.sync += [
            late.eq(self.parked & (self.dequeued | late)),
            counted.eq(self.parked | subtracts), row.eq(read.addr), beats.eq(new),
        ]
        for n in range(self._rows):
            with m.If(counted & (row == n)):
                m.d.sync += self.room[n].eq(beats <= self._most)
        return m
