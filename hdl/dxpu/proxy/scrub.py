"""What a GPU's memory holds is not for the next host.

Ref: docs/explanation/security.md, "The memory of a GPU"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import RowChange, RowEvent

__all__ = ["Scrub"]


class Scrub(wiring.Component):
    """Holds a slot that was used until its GPU has been wiped.

    A GPU is dirty from a reset of this box on, as nobody knows what was before, and from when a
    binding has opened its slot, until somebody says that it was wiped. A binding may open the slot
    of a GPU that is dirty by itself alone; others wait. Two are let in all the same: the
    maintainer, whose host may be there to wipe it and makes nothing dirty, and whoever comes to a
    GPU that wipes itself in each reset, which is never dirty.

    Latency one cycle, from a release to ``closed``, too.

    Parameters
    ----------
    rows : int

    Members
    -------
    row_event : :class:`~dxpu.mapping.types.RowEvent`
        A binding that is released.
    open : ``rows``
        Bit n: slot n + 1 is open.
    wipes : ``rows``
        Bit n: the GPU forgets all that its memory held while it is reset, before its link is up.
    hold : ``rows``
        Bit n: slot n + 1 is held, if its GPU is dirty.
    maintained : ``rows``
        Bit n: the binding of the row is the maintainer's. It counts when the slot opens.
    wiped : ``rows``
        Strobes: the GPU was wiped.
    dirty, closed : ``rows``
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "row_event": In(RowEvent),
            **{name: In(rows) for name in ("open", "wipes", "hold", "maintained", "wiped")},
            "dirty": Out(rows), "closed": Out(rows, init=-1),
        })

    def elaborate(self, platform):
        m = Module()
        used = Signal(self._rows, init=-1)
        # The binding that there is has opened the slot.
        own, released = Signal(self._rows), Signal(self._rows)
        # A row changes before its slot has closed.
        by_maintainer = Signal(self._rows)
        event = self.row_event
        m.d.comb += [
            released.eq(Mux(event.strobe & (event.change == RowChange.RELEASED), 1 << event.row,
                            0)),
            self.dirty.eq(used & ~self.wipes),
        ]
        m.d.sync += [
            by_maintainer.eq((by_maintainer & self.open) | (self.maintained & ~self.open)),
            used.eq((used & ~self.wiped) | self.open & ~by_maintainer),
            own.eq((own | self.open) & ~released),
            self.closed.eq(self.dirty & self.hold & ~self.maintained & ~own),
        ]
        return m
