"""Bindings of a host: which rows are open, and the events to the boxes.

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
    """Sends the events that follow from changes of the host table: BIND when a row is bound, UNBIND
    when it is released, RESET on request.

    A row opens in the cycle in which its BIND is offered first, so no TLP leaves before the BIND,
    and closes with its release, before the UNBIND. Events of one row leave in the order UNBIND,
    BIND, RESET; of several rows with events the lowest goes first. A BIND waits until the session
    is open. UNBIND has the generation of the BIND before it. BIND and RESET carry the number of the
    slot's life as argument, which the box repeats in RESET_DONE.

    An event is offered two cycles after its cause if no other is offered.

    Parameters
    ----------
    rows : int
        Rows of the host table.

    Members
    -------
    row_event : :class:`~dxpu.mapping.types.RowEvent`
        Change of the host table.
    generations : array of 16-bit values
        Generation of each row in the host table.
    lives : array of numbers
        Current life of each slot.
    reset_request : ``rows``
        Strobes: send RESET for row n. Ignored while the row is not open.
    session_down : ``rows``
        Bit n: the session of row n is not open.
    control : stream of :class:`~dxpu.fabric.wire.types.Control`
        Events to be sent.
    events_routed : 1
        The fabric engine has routed every event that it took from ``control``.
    open : ``rows``
        Bit n: TLPs of row n may pass in both directions.
    opened : ``rows``
        Strobes: row n opens in the next cycle.
    draining : ``rows``
        Bit n: the UNBIND of row n has no route yet. The row must keep its peer until then.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "row_event": In(RowEvent),
            "generations": In(data.ArrayLayout(16, rows)),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "reset_request": In(rows),
            "session_down": In(rows),
            "control": Out(stream.Signature(Control)),
            "events_routed": In(1, init=1),
            "open": Out(rows),
            "opened": Out(rows),
            "draining": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        unbind, bind, reset, unrouted = (
            Signal(self._rows, name=n) for n in ("unbind", "bind", "reset_pending", "unrouted"))
        bound = Signal(data.ArrayLayout(16, self._rows))
        for n in range(self._rows):
            mine = self.row_event.strobe & (self.row_event.row == n)
            with m.If(self.reset_request[n] & self.open[n]):
                m.d.sync += reset[n].eq(1)
            with m.If(mine & (self.row_event.change == RowChange.BOUND)):
                m.d.sync += bind[n].eq(1)
            with m.If(mine & (self.row_event.change == RowChange.RELEASED)):
                # A binding without a BIND needs no UNBIND; that of an earlier one may be pending.
                m.d.sync += [self.open[n].eq(0), unbind[n].eq(unbind[n] | self.open[n]),
                             bind[n].eq(0), reset[n].eq(0)]

        control = self.control
        pending, row = Signal(self._rows), Signal(range(self._rows))
        ends = control.valid & (control.payload.code == EventCode.UNBIND)
        with m.If(ends):
            m.d.sync += unrouted.bit_select(control.payload.row, 1).eq(1)
        with m.Elif(self.events_routed & ~control.valid):
            m.d.sync += unrouted.eq(0)
        m.d.comb += [
            pending.eq(unbind | bind & ~self.session_down | reset),
            row.eq(first_one(pending)),
            self.draining.eq(unbind | unrouted | Mux(ends, 1 << control.payload.row, 0)),
        ]
        with m.If(control.valid):
            with m.If(control.ready):
                m.d.sync += control.valid.eq(0)
        with m.Elif(pending.any() & ~self.row_event.strobe):
            m.d.sync += [control.valid.eq(1), control.payload.row.eq(row),
                         control.payload.argument.eq(0)]
            with m.Switch(row):
                for n in range(self._rows):
                    with m.Case(n):
                        self._load_event(m, n, bound, unbind, bind, reset)
        return m

    def _load_event(self, m, n, bound, unbind, bind, reset):
        """Offer the first pending event of row ``n``."""
        payload = self.control.payload
        m.d.sync += payload.generation.eq(bound[n])
        with m.If(unbind[n]):
            m.d.sync += [payload.code.eq(EventCode.UNBIND), unbind[n].eq(0)]
        with m.Elif(bind[n] & ~self.session_down[n]):
            m.d.comb += self.opened[n].eq(1)
            m.d.sync += [
                payload.code.eq(EventCode.BIND),
                payload.generation.eq(self.generations[n]),
                payload.argument.eq(self.lives[n]),
                bound[n].eq(self.generations[n]),
                bind[n].eq(0),
                self.open[n].eq(1),
            ]
        with m.Else():
            m.d.sync += [payload.code.eq(EventCode.RESET), payload.argument.eq(self.lives[n]),
                         reset[n].eq(0)]
