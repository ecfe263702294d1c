"""The gate in front of a slot that nobody is bound to."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.rows import LIFE_BITS, TlpMeta
from dxpu.stream import PacketSignature

__all__ = ["RowGate"]


class RowGate(wiring.Component):
    """Lets a TLP pass if its row is open when its first beat comes; else drops it whole.

    A TLP that comes into the proxy gets the current life of its row; one that is ``inside`` is
    dropped, too, if its life is over.

    No latency, one beat per cycle. What is dropped is taken from its second cycle on, whether
    ``o`` is ready or not: ``i.ready`` depends on no decision of the same cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows there are; TLPs for other rows are dropped.
    meta : shape-like
        Side information, with members ``row`` and ``life``.
    inside : bool
        Whether TLPs have a life.

    Members
    -------
    i, o : packet stream with ``meta``
    open : ``rows``
        Bit n: TLPs of row n pass.
    lives : array of numbers
        Current life of each row.
    stat_dropped : 1
        Pulse: a TLP was dropped; not for one that ends with ``discard``.
    """

    def __init__(self, width, *, rows, meta=TlpMeta, inside=False):
        super().__init__({
            "i": In(PacketSignature(width, meta)),
            "o": Out(PacketSignature(width, meta)),
            "open": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "stat_dropped": Out(1),
        })
        self._rows = rows
        self._inside = inside

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        inside, decided, now = Signal(), Signal(), Signal()
        wanted = Signal()
        row, life = i.payload.meta.row, i.payload.meta.life
        alive = self.open if not self._inside else self.open & Cat(
            life == current for current in self.lives)
        m.d.comb += [
            wanted.eq(Cat(alive[n] & (row == n) for n in range(self._rows)).any()),
            # A first beat that waits for `ready` keeps the decision it was offered with.
            now.eq(Mux(inside, decided, wanted)),
            o.payload.eq(i.payload),
            *([] if self._inside else [o.payload.meta.life.eq(Array(self.lives)[row])]),
            o.valid.eq(i.valid & now),
            i.ready.eq(o.ready | inside & ~decided),
            self.stat_dropped.eq(
                i.valid & i.ready & i.payload.last & ~i.payload.discard & ~now),
        ]
        with m.If(i.valid):
            m.d.sync += [inside.eq(1), decided.eq(now)]
            with m.If(i.ready & i.payload.last):
                m.d.sync += inside.eq(0)
        return m
