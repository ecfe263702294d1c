"""Which slots of a box are open: what their hosts say, and what their links do.

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
    """Opens and closes the slots of a box as their hosts say, if the box table agrees.

    BIND binds a slot if the row is used and has the event's generation; UNBIND and RESET act only
    if the slot is bound with that generation. A row that the manager releases ends its binding at
    once. All other events, and those that do not fit, are counted and change nothing. Acts in the
    cycle in which the event is taken.

    BIND and RESET reset the GPU; so does the end of a binding. The slot is closed meanwhile, and
    opens, with a new life, when the link has gone down and come up again, a GPU is there and all
    queues between the slot and the fabric are empty. The host is told with RESET_DONE. A link that
    is lost closes the slot; the host is told with LINK_DOWN, or PRESENCE if the GPU has gone, and
    is to send RESET. A host that sends without credits loses the slot: it closes, the GPU is
    reset, and the host is told with ERROR.

    Parameters
    ----------
    rows : int
        Slots of the box.

    Members
    -------
    event : stream of :class:`~dxpu.fabric.wire.types.Event`
    used : ``rows``
    generation : array of 16-bit values
        From the box table.
    present, link_up : ``rows``
        A GPU is in slot n + 1; its link works.
    restart : ``rows``
        Strobes: reset the GPU in slot n + 1, as if its link were lost.
    overflow : ``rows``
        Strobes: a TLP came for slot n + 1 that no credits had been granted for.
    empty : ``rows``
        Nothing is in the queues of slot n + 1.
    control : stream of :class:`~dxpu.fabric.wire.types.Control`
        One event at a time, two cycles after its cause.
    open : ``rows``
        Bit n: TLPs of slot n + 1 may pass, both ways.
    lives : array of numbers
        How often each slot has opened.
    reset : ``rows``
        Level, until the link is down and ``empty``: hot reset of the GPU in slot n + 1. While the
        link is down PCIe takes, and drops, what is queued; so nothing of it meets the next life.
    stat_refused : 1
        Pulse: an event changed nothing.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "event": In(stream.Signature(Event)),
            "used": In(rows),
            "generation": In(data.ArrayLayout(16, rows)),
            "present": In(rows),
            "link_up": In(rows),
            "restart": In(rows),
            "overflow": In(rows),
            "empty": In(rows),
            "control": Out(stream.Signature(Control)),
            "open": Out(rows),
            "lives": Out(data.ArrayLayout(LIFE_BITS, rows)),
            "reset": Out(rows),
            "stat_refused": Out(Counted(
                "Events that changed nothing: their row is not bound here, or its generation is "
                "another.")),
        })
        # Bound, and waiting for the link; what the host is to be told.
        self._bound, self._waiting, self._done, self._over, self._down = (
            Signal(rows, name=name)
            for name in ("bound", "waiting", "done_due", "over_due", "down_due"))
        self._number = Signal(data.ArrayLayout(LIFE_BITS, rows))  #: of the host's life

    def elaborate(self, platform):
        m = Module()
        event = self.event.payload
        acted, begins = Signal(self._rows), Signal(self._rows)
        m.d.comb += [
            self.event.ready.eq(1),
            self.stat_refused.eq(self.event.valid & ~acted.any()),
        ]
        for n in range(self._rows):
            fits = (self.event.valid & (event.row == n) & self.used[n]
                    & (event.generation == self.generation[n]))
            ends = self._bound[n] & (~self.used[n] | fits & (event.code == EventCode.UNBIND))
            m.d.comb += [
                begins[n].eq(fits & ((event.code == EventCode.BIND)
                                     | self._bound[n] & (event.code == EventCode.RESET))),
                acted[n].eq(begins[n] | fits & ends),
            ]
            self._step(m, n, begins[n], ends)
        self._tell(m)
        return m

    def _step(self, m, n, begins, ends):
        """Slot ``n``."""
        there, was_present = self.present[n] & self.link_up[n], Signal(name=f"was_present{n}")
        m.d.sync += was_present.eq(self.present[n])
        with m.If(~self.link_up[n] & self.empty[n]):
            m.d.sync += self.reset[n].eq(0)
        with m.Elif(self.restart[n]):
            m.d.sync += self.reset[n].eq(1)
        with m.If(self._waiting[n] & ~self.reset[n] & there & self.empty[n]):
            m.d.sync += [self._waiting[n].eq(0), self.open[n].eq(1), self._done[n].eq(1),
                         self.lives[n].eq(self.lives[n] + 1)]
        with m.If(self.open[n] & ~there | self._bound[n] & was_present & ~self.present[n]):
            m.d.sync += [self.open[n].eq(0), self._down[n].eq(1)]
        with m.If(self.open[n] & self.overflow[n]):
            m.d.sync += [self.open[n].eq(0), self.reset[n].eq(1), self._over[n].eq(1)]
        with m.If(begins | ends):
            m.d.sync += [self._bound[n].eq(begins), self._waiting[n].eq(begins),
                         self.open[n].eq(0), self.reset[n].eq(1),
                         self._done[n].eq(0), self._over[n].eq(0), self._down[n].eq(0)]
        with m.If(begins):
            m.d.sync += self._number[n].eq(self.event.payload.argument)

    def _tell(self, m):
        control = self.control
        due, row = Signal(self._rows), Signal(range(self._rows))
        m.d.comb += [due.eq(self._done | self._over | self._down), row.eq(first_one(due))]
        with m.If(control.valid):
            with m.If(control.ready):
                m.d.sync += control.valid.eq(0)
        with m.Elif(due.any()):
            m.d.sync += control.payload.row.eq(row)
            with m.Switch(row):
                for n in range(self._rows):
                    with m.Case(n):
                        self._say(m, n)

    def _say(self, m, n):
        """The next event about slot ``n``; a beginning or an end in this cycle overtakes it."""
        payload = self.control.payload
        gone = ~self.present[n]
        m.d.sync += [
            self.control.valid.eq(1),
            payload.generation.eq(self.generation[n]),
            payload.argument.eq(0),
        ]
        with m.If(self._done[n]):
            m.d.sync += [payload.code.eq(EventCode.RESET_DONE), self._done[n].eq(0),
                         payload.argument.eq(self._number[n])]
        with m.Elif(self._over[n]):
            m.d.sync += [payload.code.eq(EventCode.ERROR), self._over[n].eq(0),
                         payload.argument.eq(ErrorCode.OVERFLOW)]
        with m.Else():
            m.d.sync += [payload.code.eq(Mux(gone, EventCode.PRESENCE, EventCode.LINK_DOWN)),
                         self._down[n].eq(0)]
