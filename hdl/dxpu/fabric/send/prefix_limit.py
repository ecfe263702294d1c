"""TLPs with more prefixes than may cross the fabric."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout, check_width
from dxpu.tlp.types import MAX_END_END_PREFIXES, Fmt, HeaderCommon

__all__ = ["PrefixLimit"]


class PrefixLimit(wiring.Component):
    """Finds TLPs with more than four prefixes as their beats pass.

    Combinational; it remembers what beats were taken.

    Ref: PCIe Base 5.0, 2.2.10.2

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    beat : packet beat
    take : 1
        ``beat`` is taken in this cycle.
    exceeded : 1
        The fifth prefix of the TLP is in ``beat``, or was in an earlier one.
    """

    def __init__(self, width):
        self._lanes = check_width(width) // 32
        super().__init__({
            "beat": In(PacketLayout(width)),
            "take": In(1),
            "exceeded": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat = self.beat
        # Where the fifth prefix is: the beats before that one hold nothing but prefixes.
        before, place = divmod(MAX_END_END_PREFIXES, self._lanes)
        prefixes = Signal(self._lanes)
        m.d.comb += prefixes.eq(Cat(
            HeaderCommon(beat.data.word_select(n, 32)).fmt == Fmt.PREFIX
            for n in range(self._lanes)))

        count = Signal(range(before + 2))  # such beats; one more once the row has ended
        counted, late = Signal.like(count), Signal()
        m.d.comb += [
            counted.eq(Mux(beat.first, 0, count)),
            self.exceeded.eq(
                (late & ~beat.first)
                | (counted == before) & prefixes[:place + 1].all() & (beat.dwords > place)),
        ]
        with m.If(self.take):
            m.d.sync += [
                late.eq(self.exceeded),
                count.eq(Mux(prefixes.all() & (counted < before), counted + 1, before + 1)),
            ]
        return m
