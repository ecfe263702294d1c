"""Presence and link of the host's slots, by events of the boxes.

Ref: docs/explanation/bindings-and-lives.md, "Lives"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.fabric.wire.types import Event
from dxpu.rows import LIFE_BITS

__all__ = ["HostLinks"]


class HostLinks(wiring.Component):
    """Derives presence and link of each slot of the switch from the events of the boxes.

    RESET_DONE with the number of the slot's current life brings the link up and makes the card
    present; both show in the same cycle. LINK_DOWN, and the end of a life, take the link down. Each
    end of a life requests a reset of the box's slot, whose RESET_DONE begins the next life. The
    link comes up only when no request of the life before is outstanding.

    The card is removed when its row is released, by PRESENCE of the box, by ``remove``, and by
    ERROR of the box (TLPs without credits: the box has fenced the slot). After the last two it is
    lost: nothing but a new binding brings it back. Events with another generation, and those that
    change nothing, are counted.

    Parameters
    ----------
    rows : int
        Rows of the host table; row n is the slot of downstream port n.

    Members
    -------
    event : stream of :class:`~dxpu.fabric.wire.types.Event`
        Events from boxes, taken at once.
    event_generation : 16
        Generation of the row that ``event`` names, in the same cycle.
    open, opened : ``rows``
        State and strobes of :class:`~dxpu.proxy.bindings.HostBindings`.
    hot_reset : ``rows``
        Strobes: end the life of slot n.
    remove : ``rows``
        Strobes: remove the card in slot n.
    drained : ``rows``
        Bit n: no request to slot n is outstanding.
    link_active : ``rows``
        Bit n: the switch lets TLPs of slot n pass.
    lives : array of numbers
        Current life of each slot, from the switch.
    present, link_up : ``rows``
        Bit n: slot n has a card; its link works. To the switch.
    card_removed : ``rows``
        Bit n: the card in slot n was lost since the row was bound.
    reset_request : ``rows``
        Strobes: the box must reset the slot of row n.
    fenced : ``rows``
        Strobes: the box has fenced the slot of row n.
    stat_ignored : 1
        Pulse: an event changed nothing.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "event": In(stream.Signature(Event)),
            "event_generation": In(16),
            "open": In(rows),
            "opened": In(rows),
            "hot_reset": In(rows),
            "remove": In(rows),
            "drained": In(rows),
            "link_active": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "present": Out(rows),
            "link_up": Out(rows),
            "card_removed": Out(rows),
            "reset_request": Out(rows),
            "fenced": Out(rows),
            "stat_ignored": Out(Counted("Events of boxes that changed nothing.")),
        })

    def elaborate(self, platform):
        m = Module()
        event = self.event.payload
        was_active, accepted, up = (Signal(self._rows) for _ in range(3))
        is_current = Signal()
        m.d.sync += was_active.eq(self.link_active)
        m.d.comb += [
            self.event.ready.eq(1),
            is_current.eq(event.generation == self.event_generation),
            self.link_up.eq(up & (self.link_active | self.drained)),
            self.stat_ignored.eq(self.event.valid & ~accepted.any()),
        ]
        for n in range(self._rows):
            ended, down = was_active[n] & ~self.link_active[n], Signal(name=f"down{n}")
            is_valid = (self.event.valid & (event.row == n) & self.open[n] & ~self.card_removed[n]
                        & is_current)
            with m.If(self.link_up[n]):
                m.d.sync += self.present[n].eq(1)
            with m.If(is_valid):
                with m.Switch(event.code):
                    with m.Case(EventCode.RESET_DONE):
                        m.d.comb += accepted[n].eq((event.argument == self.lives[n]) & ~ended)
                        with m.If(accepted[n]):
                            m.d.sync += up[n].eq(1)
                    with m.Case(EventCode.LINK_DOWN):
                        m.d.comb += [accepted[n].eq(up[n]), down.eq(up[n])]
                        m.d.sync += up[n].eq(0)
                    with m.Case(EventCode.PRESENCE):
                        m.d.comb += [accepted[n].eq(self.present[n] & ~event.argument[0]),
                                     down.eq(accepted[n])]
                        with m.If(~event.argument[0]):
                            m.d.sync += [up[n].eq(0), self.present[n].eq(0)]
                    with m.Case(EventCode.ERROR):
                        m.d.comb += [accepted[n].eq(event.argument == ErrorCode.OVERFLOW),
                                     self.fenced[n].eq(accepted[n])]
            # An active link that goes down ends a life; `ended` requests the reset then.
            m.d.comb += self.reset_request[n].eq(
                self.open[n] & (ended | (down | self.hot_reset[n]) & ~self.link_active[n]))
            with m.If(ended | self.hot_reset[n]):
                m.d.sync += up[n].eq(0)
            removed = self.remove[n] | self.fenced[n]
            with m.If(removed & self.open[n]):
                m.d.sync += self.card_removed[n].eq(1)
            with m.If(~self.open[n] | removed):
                m.d.sync += [up[n].eq(0), self.present[n].eq(0)]
            with m.If(self.opened[n]):
                m.d.sync += self.card_removed[n].eq(0)
        return m
