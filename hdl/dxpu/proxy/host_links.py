"""What the host's slots show of GPUs far away: presence and link.

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
    """Follows the GPUs behind the rows by the events of their boxes.

    A link is up from the RESET_DONE that repeats the number of the slot's current life, until the
    life ends or the box says LINK_DOWN; the first one makes the card present. Each end of a life
    asks the box for a reset, with which the next one begins. The card is gone when its row is
    released, when the box says so, and when it is ``lost``; after that only another binding brings
    it back. A card is lost, too, when the box has fenced its slot because TLPs came there without
    credits. Events of another generation, or that change nothing, are counted.

    Presence and link appear in the same cycle. A link comes up only when no request of the life
    before is open.

    Parameters
    ----------
    rows : int

    Members
    -------
    event : stream of :class:`~dxpu.fabric.wire.types.Event`
    generation : array of 16-bit values
        Of the rows.
    open, began : ``rows``
        Of :class:`~dxpu.proxy.bindings.HostBindings`.
    restart : ``rows``
        Strobes: end the life of slot n.
    lose : ``rows``
        Strobes: the card in slot n counts as gone.
    drained : ``rows``
        No request to slot n is open.
    link_active : ``rows``
        The switch lets TLPs pass.
    lives : array of numbers
        From the switch.
    present, link_up : ``rows``
        To the switch.
    lost : ``rows``
        The card was lost since its row was bound.
    reset : ``rows``
        Strobes: the box is to reset the slot.
    fenced : ``rows``
        Strobes: the box has fenced the slot.
    stat_ignored : 1
        Pulse: an event changed nothing.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "event": In(stream.Signature(Event)),
            "generation": In(data.ArrayLayout(16, rows)),
            "open": In(rows),
            "began": In(rows),
            "restart": In(rows),
            "lose": In(rows),
            "drained": In(rows),
            "link_active": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "present": Out(rows),
            "link_up": Out(rows),
            "lost": Out(rows),
            "reset": Out(rows),
            "fenced": Out(rows),
            "stat_ignored": Out(Counted("Events of boxes that changed nothing.")),
        })

    def elaborate(self, platform):
        m = Module()
        event = self.event.payload
        was_active, acted, up = (Signal(self._rows) for _ in range(3))
        m.d.sync += was_active.eq(self.link_active)
        m.d.comb += [
            self.event.ready.eq(1),
            self.link_up.eq(up & (self.link_active | self.drained)),
            self.stat_ignored.eq(self.event.valid & ~acted.any()),
        ]
        for n in range(self._rows):
            ended, down = was_active[n] & ~self.link_active[n], Signal(name=f"down{n}")
            fits = (self.event.valid & (event.row == n) & self.open[n] & ~self.lost[n]
                    & (event.generation == self.generation[n]))
            with m.If(self.link_up[n]):
                m.d.sync += self.present[n].eq(1)
            with m.If(fits):
                with m.Switch(event.code):
                    with m.Case(EventCode.RESET_DONE):
                        m.d.comb += acted[n].eq((event.argument == self.lives[n]) & ~ended)
                        with m.If(acted[n]):
                            m.d.sync += up[n].eq(1)
                    with m.Case(EventCode.LINK_DOWN):
                        m.d.comb += [acted[n].eq(up[n]), down.eq(up[n])]
                        m.d.sync += up[n].eq(0)
                    with m.Case(EventCode.PRESENCE):
                        m.d.comb += [acted[n].eq(self.present[n] & ~event.argument[0]),
                                     down.eq(acted[n])]
                        with m.If(~event.argument[0]):
                            m.d.sync += [up[n].eq(0), self.present[n].eq(0)]
                    with m.Case(EventCode.ERROR):
                        m.d.comb += [acted[n].eq(event.argument == ErrorCode.OVERFLOW),
                                     self.fenced[n].eq(acted[n])]
            # An active link that goes down ends a life, and that asks for the reset.
            m.d.comb += self.reset[n].eq(
                self.open[n] & (ended | (down | self.restart[n]) & ~self.link_active[n]))
            with m.If(ended | self.restart[n]):
                m.d.sync += up[n].eq(0)
            loses = self.lose[n] | self.fenced[n]
            with m.If(loses & self.open[n]):
                m.d.sync += self.lost[n].eq(1)
            with m.If(~self.open[n] | loses):
                m.d.sync += [up[n].eq(0), self.present[n].eq(0)]
            with m.If(self.began[n]):
                m.d.sync += self.lost[n].eq(0)
        return m
