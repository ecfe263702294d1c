"""The gate in front of a slot that nobody is bound to."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..stream import PacketSignature
from .types import TlpMeta

__all__ = ["RowGate"]


class RowGate(wiring.Component):
    """Lets a TLP pass if its row is open when its first beat comes; else drops it whole.

    No latency, one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows there are; TLPs for other rows are dropped.

    Members
    -------
    i, o : packet stream with meta :class:`~dxpu.fabric.types.TlpMeta`
    open : ``rows``
        Bit n: TLPs of row n pass.
    stat_dropped : 1
        Pulse: a TLP was dropped.
    """

    def __init__(self, width, *, rows):
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "o": Out(PacketSignature(width, TlpMeta)),
            "open": In(rows),
            "stat_dropped": Out(1),
        })
        self._rows = rows

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        inside, decided, now = Signal(), Signal(), Signal()
        wanted = Signal()
        row = i.payload.meta.row
        m.d.comb += [
            wanted.eq(Cat(self.open[n] & (row == n) for n in range(self._rows)).any()),
            # A first beat that waits for `ready` keeps the decision it was offered with.
            now.eq(Mux(inside, decided, wanted)),
            o.payload.eq(i.payload),
            o.valid.eq(i.valid & now),
            i.ready.eq(o.ready | ~now),
            self.stat_dropped.eq(i.valid & i.payload.last & ~now),
        ]
        with m.If(i.valid):
            m.d.sync += [inside.eq(1), decided.eq(now)]
            with m.If(i.ready & i.payload.last):
                m.d.sync += inside.eq(0)
        return m
