"""Names of TLPs, as they pass a place.

Ref: PCIe Base 5.0, 2.2.1, 2.2.6.2 (transaction ID), 2.2.9
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import check_width

__all__ = ["CLOCK_BITS", "HeadTap", "Sight"]

#: Bits of the clock of stages, in cycles.
CLOCK_BITS = 16


class Sight(data.Struct):
    """A TLP that has passed a place.

    Members
    -------
    strobe : 1
    named : 1
        The TLP is a completion, or a non-posted request but for configuration, without prefixes.
        These have a name. (Configuration requests have, too, but most end in the host proxy.)
    name : 65
        Of a request the second and third dword: requester ID, tag, and address. Of a completion
        the same dwords: byte count, requester ID, tag, lower address. And which of the two it is.
    time : 16
        When its first beat passed.
    """

    strobe: 1
    named: 1
    name: 65
    time: CLOCK_BITS


class HeadTap(wiring.Component):
    """Looks on while TLPs pass a place, and tells the name of each.

    ``take``, ``first`` and ``data`` go into registers and nowhere else, so the path that is looked
    at does not get longer. A TLP is told one cycle after its third dword has passed.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    take, first, data : 1, 1, ``width``
        A beat passes in this cycle; it is the first of a TLP; its dwords.
    now : 16
        Clock in cycles.
    sight : :class:`Sight`
        ``time`` is that of the cycle after the first beat, at every place.
    """

    def __init__(self, width):
        self._lanes = check_width(width) // 32
        super().__init__({"take": In(1), "first": In(1), "data": In(width),
                          "now": In(CLOCK_BITS), "sight": Out(Sight)})

    def elaborate(self, platform):
        m = Module()
        lanes, sight = self._lanes, self.sight
        take, first = Signal(), Signal()
        beat = Signal(32 * min(lanes, 3), reset_less=True)
        m.d.sync += [take.eq(self.take), first.eq(self.first), beat.eq(self.data)]
        # Beats of the TLP before this one, as far as they matter, and what they held.
        steps = -(-3 // lanes)
        step, here = Signal(range(steps + 1), init=steps), Signal(range(steps + 1))
        kept = [Signal(32, name=f"dword{n}", reset_less=True) for n in range(2)]
        began = Signal(CLOCK_BITS, reset_less=True)
        m.d.comb += here.eq(Mux(first, 0, step))
        with m.If(take & (here != steps)):
            m.d.sync += step.eq(here + 1)
        dwords = []
        for n in range(3):
            place, lane = divmod(n, lanes)
            value = beat.word_select(lane, 32)
            if place < steps - 1:
                with m.If(take & (here == place)):
                    m.d.sync += kept[n].eq(value)
                value = kept[n]
            dwords.append(value)
        with m.If(take & first):
            m.d.sync += began.eq(self.now)
        kind, fmt = dwords[0][:5], dwords[0][5:8]
        completes, configures, posted = Signal(), Signal(), Signal()
        m.d.comb += [
            completes.eq(kind[1:] == 0b0101),
            configures.eq(kind[1:] == 0b0010),
            posted.eq((kind == 0) & fmt[1] | (kind[3:] == 0b10)),
            sight.strobe.eq(take & (here == steps - 1)),
            sight.named.eq(~(fmt[2] | posted | configures)),
            sight.name.eq(Cat(dwords[1], dwords[2], completes)),
            sight.time.eq(Mux(first, self.now, began)),
        ]
        return m
