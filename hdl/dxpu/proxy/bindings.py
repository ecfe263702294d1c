"""Which rows of a host are bound, and the events that tell the boxes.

Ref: docs/explanation/bindings-and-lives.md, "Bindings"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import EventCode
from dxpu.fabric.wire.types import Control
from dxpu.mapping.types import RowChange, RowEvent
from dxpu.priority import first_one
from dxpu.rows import LIFE_BITS

__all__ = ["HostBindings"]


class HostBindings(wiring.Component):
    """Tells boxes what the host table says: BIND when a row is bound, UNBIND when it is released,
    RESET on request.

    A row opens when its BIND is on its way, so that no TLP comes before it, and closes before its
    UNBIND. Events of one row leave in this order: UNBIND, BIND, RESET; a BIND waits until the
    session is open. One event at a time, two cycles after its cause. BIND and RESET have the number
    of the slot's life as argument; the box repeats it when the reset is over.

    Parameters
    ----------
    rows : int
        Rows of the host table.

    Members
    -------
    committed : :class:`~dxpu.mapping.types.RowEvent`
    generation : array of 16-bit values
        Generation of each row, from the host table.
    lives : array of numbers
        Current life of each slot.
    reset : ``rows``
        Strobes: send RESET for a row; ignored while it is not bound.
    hold : ``rows``
        Bit n: the session of row n is not open.
    control : stream of :class:`~dxpu.fabric.wire.types.Control`
    events_left : 1
        Every event that was handed over has its peer.
    open : ``rows``
        Bit n: TLPs of row n may pass, both ways.
    began : ``rows``
        Strobes: row n has opened.
    draining : ``rows``
        Bit n: the UNBIND of row n has no peer yet; the row must keep it.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "committed": In(RowEvent),
            "generation": In(data.ArrayLayout(16, rows)),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "reset": In(rows),
            "hold": In(rows),
            "control": Out(stream.Signature(Control)),
            "events_left": In(1, init=1),
            "open": Out(rows),
            "began": Out(rows),
            "draining": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        unbind, bind, reset, leaving = (
            Signal(self._rows, name=n) for n in ("unbind", "bind", "reset_due", "leaving"))
        bound = Signal(data.ArrayLayout(16, self._rows))
        for n in range(self._rows):
            mine = self.committed.strobe & (self.committed.row == n)
            with m.If(self.reset[n] & self.open[n]):
                m.d.sync += reset[n].eq(1)
            with m.If(mine & (self.committed.change == RowChange.BOUND)):
                m.d.sync += bind[n].eq(1)
            with m.If(mine & (self.committed.change == RowChange.RELEASED)):
                # A binding that no BIND was sent for needs no UNBIND, but that of the one before
                # may still be due.
                m.d.sync += [self.open[n].eq(0), unbind[n].eq(unbind[n] | self.open[n]),
                             bind[n].eq(0), reset[n].eq(0)]

        control = self.control
        due, row = Signal(self._rows), Signal(range(self._rows))
        ends = control.valid & (control.payload.code == EventCode.UNBIND)
        with m.If(ends):
            m.d.sync += leaving.bit_select(control.payload.row, 1).eq(1)
        with m.Elif(self.events_left & ~control.valid):
            m.d.sync += leaving.eq(0)
        m.d.comb += [
            due.eq(unbind | bind & ~self.hold | reset),
            row.eq(first_one(due)),
            self.draining.eq(unbind | leaving | Mux(ends, 1 << control.payload.row, 0)),
        ]
        with m.If(control.valid):
            with m.If(control.ready):
                m.d.sync += control.valid.eq(0)
        with m.Elif(due.any() & ~self.committed.strobe):
            m.d.sync += [control.valid.eq(1), control.payload.row.eq(row),
                         control.payload.argument.eq(0)]
            with m.Switch(row):
                for n in range(self._rows):
                    with m.Case(n):
                        self._next(m, n, bound, unbind, bind, reset)
        return m

    def _next(self, m, n, bound, unbind, bind, reset):
        """The next event of row ``n``."""
        payload = self.control.payload
        m.d.sync += payload.generation.eq(bound[n])
        with m.If(unbind[n]):
            m.d.sync += [payload.code.eq(EventCode.UNBIND), unbind[n].eq(0)]
        with m.Elif(bind[n] & ~self.hold[n]):
            m.d.comb += self.began[n].eq(1)
            m.d.sync += [
                payload.code.eq(EventCode.BIND),
                payload.generation.eq(self.generation[n]),
                payload.argument.eq(self.lives[n]),
                bound[n].eq(self.generation[n]),
                bind[n].eq(0),
                self.open[n].eq(1),
            ]
        with m.Else():
            m.d.sync += [payload.code.eq(EventCode.RESET), payload.argument.eq(self.lives[n]),
                         reset[n].eq(0)]
