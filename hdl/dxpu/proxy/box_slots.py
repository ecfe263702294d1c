"""State of a box's slots: bound, in reset, open.

Ref: docs/explanation/bindings-and-lives.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.fabric.wire.types import Control, Event
from dxpu.priority import first_one
from dxpu.rows import LIFE_BITS

__all__ = ["BoxSlots"]


class BoxSlots(wiring.Component):
    """Opens and closes the slots of a box by events of their hosts, as the box table allows.

    BIND binds a slot if its row is used and has the generation of the event. UNBIND and RESET are
    accepted if the slot is bound and the generation matches. A row that is not used any more ends
    its binding at once. Other events are counted and change nothing. An event is taken, and takes
    effect, in the cycle in which it is offered.

    BIND, RESET and the end of a binding close the slot and reset the GPU. After BIND and RESET the
    slot opens, with the next life, once the link was down and is up again, a GPU is present, the
    slot is not to stay closed, and all queues between slot and fabric are empty. Then RESET_DONE is
    sent. A slot whose link goes down closes, and LINK_DOWN is sent, or PRESENCE if the GPU is not
    there any more; the host answers with RESET. A slot whose host sends without credits closes, its
    GPU is reset, and ERROR is sent.

    Parameters
    ----------
    rows : int
        Slots of the box; row n is slot n + 1.

    Members
    -------
    event : stream of :class:`~dxpu.fabric.wire.types.Event`
        Events from hosts.
    used, generations : ``rows``, array of 16-bit values
        Rows of the box table: whether each is bound, and its generation.
    present, link_up : ``rows``
        Bit n: a GPU is in slot n + 1; its link works.
    hot_reset : ``rows``
        Strobes: reset the GPU in slot n + 1. To the host it is a lost link.
    overflow : ``rows``
        Strobes: a TLP for slot n + 1 came without credits.
    empty : ``rows``
        Bit n: the queues of slot n + 1 are empty.
    closed : ``rows``
        Bit n: slot n + 1 must not open.
    control : stream of :class:`~dxpu.fabric.wire.types.Control`
        Events to hosts. One is offered two cycles after its cause if no other is offered; of
        several slots the lowest goes first.
    open : ``rows``
        Bit n: TLPs of slot n + 1 may pass in both directions.
    lives : array of numbers
        Current life of each slot: openings since reset, modulo.
    reset : ``rows``
        Bit n: hot reset of the GPU in slot n + 1. It stays 1 until the link is down and the queues
        are empty: while a link is down, what is queued is taken and dropped at the PCIe side.
    stat_refused : 1
        Pulse: an event changed nothing.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "event": In(stream.Signature(Event)),
            "used": In(rows),
            "generations": In(data.ArrayLayout(16, rows)),
            "present": In(rows),
            "link_up": In(rows),
            "hot_reset": In(rows),
            "overflow": In(rows),
            "empty": In(rows),
            "closed": In(rows),
            "control": Out(stream.Signature(Control)),
            "open": Out(rows),
            "lives": Out(data.ArrayLayout(LIFE_BITS, rows)),
            "reset": Out(rows),
            "stat_refused": Out(Counted(
                "Events that changed nothing: their row is not bound here, or its generation is "
                "another.")),
        })
        # `waiting`: to open. `pending`: of events RESET_DONE, ERROR, and LINK_DOWN or PRESENCE.
        self._bound, self._waiting, self._done_pending, self._error_pending, self._down_pending = (
            Signal(rows, name=name)
            for name in ("bound", "waiting", "done_pending", "error_pending", "down_pending"))
        #: Argument of the last BIND or RESET: number of the slot's life at the host.
        self._host_life = Signal(data.ArrayLayout(LIFE_BITS, rows))

    def elaborate(self, platform):
        m = Module()
        event = self.event.payload
        accepted, begins = Signal(self._rows), Signal(self._rows)
        m.d.comb += [
            self.event.ready.eq(1),
            self.stat_refused.eq(self.event.valid & ~accepted.any()),
        ]
        for n in range(self._rows):
            is_valid = (self.event.valid & (event.row == n) & self.used[n]
                        & (event.generation == self.generations[n]))
            ends = self._bound[n] & (~self.used[n] | is_valid & (event.code == EventCode.UNBIND))
            m.d.comb += [
                begins[n].eq(is_valid & ((event.code == EventCode.BIND)
                                         | self._bound[n] & (event.code == EventCode.RESET))),
                accepted[n].eq(begins[n] | is_valid & ends),
            ]
            self._advance(m, n, begins[n], ends)
        self._send_events(m)
        return m

    def _advance(self, m, n, begins, ends):
        """State of slot ``n``; an event begins or ends its binding in this cycle."""
        link_ready, was_present = self.present[n] & self.link_up[n], Signal(name=f"was_present{n}")
        m.d.sync += was_present.eq(self.present[n])
        with m.If(~self.link_up[n] & self.empty[n]):
            m.d.sync += self.reset[n].eq(0)
        with m.Elif(self.hot_reset[n]):
            m.d.sync += self.reset[n].eq(1)
        with m.If(self._waiting[n] & ~self.reset[n] & link_ready & self.empty[n] & ~self.closed[n]):
            m.d.sync += [self._waiting[n].eq(0), self.open[n].eq(1), self._done_pending[n].eq(1),
                         self.lives[n].eq(self.lives[n] + 1)]
        with m.If(self.open[n] & ~link_ready | self._bound[n] & was_present & ~self.present[n]):
            m.d.sync += [self.open[n].eq(0), self._down_pending[n].eq(1)]
        with m.If(self.open[n] & self.overflow[n]):
            m.d.sync += [self.open[n].eq(0), self.reset[n].eq(1), self._error_pending[n].eq(1)]
        with m.If(begins | ends):
            m.d.sync += [self._bound[n].eq(begins), self._waiting[n].eq(begins),
                         self.open[n].eq(0), self.reset[n].eq(1),
                         self._done_pending[n].eq(0), self._error_pending[n].eq(0),
                         self._down_pending[n].eq(0)]
        with m.If(begins):
            m.d.sync += self._host_life[n].eq(self.event.payload.argument)

    def _send_events(self, m):
        control = self.control
        pending, row = Signal(self._rows), Signal(range(self._rows))
        m.d.comb += [
            pending.eq(self._done_pending | self._error_pending | self._down_pending),
            row.eq(first_one(pending)),
        ]
        with m.If(control.valid):
            with m.If(control.ready):
                m.d.sync += control.valid.eq(0)
        with m.Elif(pending.any()):
            m.d.sync += control.payload.row.eq(row)
            with m.Switch(row):
                for n in range(self._rows):
                    with m.Case(n):
                        self._load_event(m, n)

    def _load_event(self, m, n):
        """Offer the first pending event of slot ``n``. One that begins or ends its binding in this
        cycle does not remove it any more."""
        payload = self.control.payload
        gone = ~self.present[n]
        m.d.sync += [
            self.control.valid.eq(1),
            payload.generation.eq(self.generations[n]),
            payload.argument.eq(0),
        ]
        with m.If(self._done_pending[n]):
            m.d.sync += [payload.code.eq(EventCode.RESET_DONE), self._done_pending[n].eq(0),
                         payload.argument.eq(self._host_life[n])]
        with m.Elif(self._error_pending[n]):
            m.d.sync += [payload.code.eq(EventCode.ERROR), self._error_pending[n].eq(0),
                         payload.argument.eq(ErrorCode.OVERFLOW)]
        with m.Else():
            m.d.sync += [payload.code.eq(Mux(gone, EventCode.PRESENCE, EventCode.LINK_DOWN)),
                         self._down_pending[n].eq(0)]
