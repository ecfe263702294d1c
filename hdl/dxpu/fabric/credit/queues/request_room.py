"""Room for non-posted TLPs, told in advance.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import data, wiring
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
        A TLP has left it.
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
        # What is late in its cycle is counted in the next one.
        adds, leaves, clears, subtracts = Signal(), Signal(), Signal(), Signal()
        added, left = (Signal(data.StructLayout({"row": range(self._rows), "beats": shape}),
                              name=name, reset_less=True) for name in ("added", "left"))
        new = Signal(shape)
        m.d.sync += [
            adds.eq(self.parked), added.row.eq(self.parked_row), added.beats.eq(self.parked_beats),
            # Both at once: one leaves a cycle later.
            leaves.eq(self.dequeued | adds & leaves), clears.eq(self.clear),
        ]
        with m.If(self.dequeued | self.clear):
            m.d.sync += [left.row.eq(self.dequeued_row), left.beats.eq(self.dequeued_beats)]
        m.d.comb += [
            subtracts.eq(~adds & leaves),
            read.addr.eq(Mux(adds, added.row, left.row)), write.addr.eq(read.addr),
            write.en.eq(adds | leaves | clears),
            new.eq(read.data + Mux(adds, added.beats, ~left.beats) + ~adds),
            write.data.eq(Mux(clears, 0, new)),
        ]
        for n in range(self._rows):
            with m.If((adds | subtracts) & (read.addr == n)):
                m.d.sync += self.room[n].eq(new <= self._most)
        return m
