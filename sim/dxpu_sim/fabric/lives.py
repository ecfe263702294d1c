"""Begins the lives of all rows at once, as the bindings of host and box do; simulation only."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import EventCode
from dxpu.fabric.wire.types import Control, Event
from dxpu.rows import LIFE_BITS

__all__ = ["GENERATION", "Lives"]

#: Generation of all rows.
GENERATION = 0x1207
#: Cycles between the end of a life and the next, in which frames under way pass.
PAUSE = 40


class Lives(wiring.Component):
    """Opens all rows of an engine while its session is up, and closes them otherwise.

    A host sends BIND for each row, with the number of a new life. A box answers with RESET_DONE
    when its queue holds nothing of the row's old life.

    Parameters
    ----------
    rows : int
        Number of rows.
    host : bool
        This is the host's end.

    Members
    -------
    up : 1
        The session is open.
    event, control : stream of :class:`~dxpu.fabric.wire.types.Event` in, `Control` out
        Streams of the engine.
    empty : ``rows``
        The row's queue is empty.
    open, lives, receiving
        Inputs of the engine.
    ready : 1
        TLPs of all rows may be sent.
    """

    def __init__(self, *, rows, host):
        self._rows, self._host = rows, host
        super().__init__({
            "up": In(1),
            "event": In(stream.Signature(Event)),
            "control": Out(stream.Signature(Control)),
            "empty": In(rows),
            "open": Out(rows),
            "lives": Out(data.ArrayLayout(LIFE_BITS, rows)),
            "receiving": Out(rows),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        control, pause = self.control, Signal(range(PAUSE + 1))
        m.d.comb += [self.event.ready.eq(1), self.ready.eq(self.receiving.all())]
        m.d.sync += control.payload.generation.eq(GENERATION)
        with m.If(control.ready):
            m.d.sync += control.valid.eq(0)
        with m.If(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        (self._bind if self._host else self._answer)(m, pause)
        with m.If(~self.up):
            m.d.sync += [self.open.eq(0), self.receiving.eq(0)]
        return m

    def _bind(self, m, pause):
        event, row = self.event.payload, Signal(range(self._rows + 1))
        for n in range(self._rows):
            with m.If(self.event.valid & (event.row == n) & self.open[n]
                      & (event.code == EventCode.RESET_DONE)
                      & (event.argument == self.lives[n])):
                m.d.sync += self.receiving[n].eq(1)
        with m.FSM():
            with m.State("Down"):
                m.d.sync += [row.eq(0), pause.eq(PAUSE)]
                with m.If(self.up & ~self.control.valid):
                    m.d.sync += [life.eq(life + 1) for life in self.lives]
                    m.next = "Wait"
            with m.State("Wait"):
                with m.If(~self.up):
                    m.next = "Down"
                with m.Elif((pause == 0) & self.empty.all()):
                    m.next = "Bind"
            with m.State("Bind"):
                with m.If(~self.control.valid):
                    m.d.sync += [
                        self.control.valid.eq(1),
                        self.control.payload.code.eq(EventCode.BIND),
                        self.control.payload.row.eq(row),
                        self.control.payload.argument.eq(Array(self.lives)[row]),
                        self.open.bit_select(row, 1).eq(1),
                        row.eq(row + 1),
                    ]
                    with m.If(row == self._rows - 1):
                        m.next = "Up"
                with m.If(~self.up):
                    m.next = "Down"
            with m.State("Up"):
                with m.If(~self.up):
                    m.next = "Down"

    def _answer(self, m, pause):
        event, asked = self.event.payload, Signal(self._rows)
        numbers = Signal(data.ArrayLayout(32, self._rows))
        row = Signal(range(self._rows))
        with m.If(~self.control.valid & (pause == 0)):
            m.d.sync += row.eq(Mux(row == self._rows - 1, 0, row + 1))
            with m.If((asked & self.empty).bit_select(row, 1)):
                m.d.sync += [
                    asked.bit_select(row, 1).eq(0),
                    self.open.bit_select(row, 1).eq(1),
                    self.receiving.bit_select(row, 1).eq(1),
                    Array(self.lives)[row].eq(Array(self.lives)[row] + 1),
                    self.control.valid.eq(1),
                    self.control.payload.code.eq(EventCode.RESET_DONE),
                    self.control.payload.row.eq(row),
                    self.control.payload.argument.eq(Array(numbers)[row]),
                ]
        with m.If(self.event.valid & (event.code == EventCode.BIND)):
            m.d.sync += [
                pause.eq(PAUSE),
                asked.bit_select(event.row, 1).eq(1),
                Array(numbers)[event.row].eq(event.argument),
                self.open.bit_select(event.row, 1).eq(0),
                self.receiving.bit_select(event.row, 1).eq(0),
            ]
        with m.If(~self.up):
            m.d.sync += asked.eq(0)
