"""What is withheld of the credits of a row, so that all rows together have less under way.

Ref: docs/explanation/flow-control.md, Many senders; docs/reference/fabric-spec.md, credits
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import ACK_ENTRIES
from dxpu.fabric.wire.types import Limit
from dxpu.priority import pick
from dxpu.rows import ClassMeta
from dxpu.tlp.types import TlpClass

from .credits import low

__all__ = ["GrantShares"]


class GrantShares(wiring.Component):
    """Says by how much less the limits of a row are told than there is room for.

    A row is busy from the cycle after a posted TLP or a completion left its queue until none has
    left it for one to two ticks. A busy row gets the share for as many busy rows as there are,
    another one the share for as many as there are rows. The number of busy rows is known two cycles
    later; a limit that was told before shrinks when it is told again.

    Parameters
    ----------
    rows : int
    initial : three pairs of int
        Headers and units that each row grants, of each class.
    shares : sequence of three pairs of int
        The same, at most, while 1, 2, 4, 8 and so on rows are busy; the last ones while more are.

    Members
    -------
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP has left its queue.
    tick : 1
        Strobe, some times a millisecond.
    row : 6
    withheld : array of :class:`~dxpu.fabric.wire.types.Limit`
        For ``row``, in the same cycle: the headers and units of each class that are not granted.
    """

    def __init__(self, *, rows, initial, shares):
        for share in shares:
            for (headers, units), (most_headers, most_units) in zip(share, initial, strict=True):
                if not (0 < headers <= most_headers and 0 < units <= most_units):
                    raise ValueError(f"shares must be within {initial!r}, not {share!r}")
        self._rows, self._initial, self._shares = rows, initial, tuple(shares)
        super().__init__({
            "released": In(ClassMeta),
            "released_strobe": In(1),
            "tick": In(1),
            "row": In(6),
            "withheld": Out(data.ArrayLayout(Limit, ACK_ENTRIES)),
        })

    def elaborate(self, platform):
        m = Module()
        rows, last = self._rows, len(self._shares) - 1
        busy, recent, left = Signal(rows), Signal(rows), Signal(rows)
        number, level = Signal(range(rows + 1)), Signal(range(len(self._shares)))
        applies = Signal.like(level)
        m.d.comb += [
            left.eq(Mux(self.released_strobe & (self.released.cls != TlpClass.NP),
                        1 << low(self.released.row, rows), 0)),
            applies.eq(Mux(pick(busy, low(self.row, rows)), level,
                           min(last, (rows - 1).bit_length()))),
        ]
        m.d.sync += [
            # At a tick those stay busy that a TLP has left since the last one.
            recent.eq(Mux(self.tick, left, recent | left)),
            busy.eq(Mux(self.tick, recent, busy) | left),
            number.eq(sum(busy)),
            level.eq(sum(number > 1 << n for n in range(last))),
        ]
        for cls, (headers, units) in enumerate(self._initial):
            withheld = self.withheld[cls]
            with m.Switch(applies):
                for n, share in enumerate(self._shares):
                    with m.Case(n):
                        m.d.comb += [withheld.header.eq(headers - share[cls][0]),
                                     withheld.data.eq(units - share[cls][1])]
        return m
