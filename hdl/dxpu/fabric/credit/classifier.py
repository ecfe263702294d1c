"""What credits a TLP takes, from its first header dword."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.priority import lowest_bit, one_hot_mux
from dxpu.rows import ClassMeta, TlpMeta
from dxpu.stream import PacketLayout, PacketSignature, Register, check_width
from dxpu.tlp.header import Kind
from dxpu.tlp.types import MAX_END_END_PREFIXES, HeaderCommon

__all__ = ["Classifier", "credits_of"]


def credits_of(m, word):
    """Class and data units of a TLP whose first header dword, in lane order, is ``word``."""
    common = HeaderCommon(word)
    kind = Kind.of(m, common.fmt, common.type)
    length = Cat(common.length_low, common.length_high)
    dwords = Mux(common.fmt[1], Cat(length, length == 0), 0)
    return kind.cls, (dwords + 3)[2:]


class Classifier(wiring.Component):
    """Tells with the first beat of each TLP which credits it takes: its class, and units of data.

    TLPs with more than ``largest`` units are dropped and counted.

    Latency one cycle; of a TLP that begins with ``n`` beats of nothing but prefixes 2 + 2 n.
    Throughput a beat per cycle, but for those. What is no TLP leaves with any class.
    ``i.ready`` depends on nothing that comes in the same cycle.

    Ref: PCIe Base 5.0, 2.6.1

    Parameters
    ----------
    width : int
        Data bits per beat.
    largest : int, optional
        Units of the largest TLP that passes.

    Members
    -------
    i : packet stream with :class:`~dxpu.rows.TlpMeta`
    o : packet stream with :class:`~dxpu.rows.ClassMeta`
    ahead : :class:`~dxpu.rows.ClassMeta`
        Row and class of the beat that follows that on ``o``: a cycle before ``o`` has it, if it is
        offered then.
    stat_large : 1
        Pulse: a TLP was dropped.
    """

    def __init__(self, width, *, largest=None):
        self._width, self._largest = check_width(width), largest
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "ahead": Out(ClassMeta),
            "stat_large": Out(Counted(
                f"TLPs to be sent with more than {16 * (largest or 0)} bytes of data; dropped.")),
        })

    def elaborate(self, platform):
        m = Module()
        i, layout = self.i, PacketLayout(self._width)
        lanes = self._width // 32
        # What is too large is known late, so it is dropped behind the register.
        m.submodules.stage = stage = Register(data.StructLayout(
            {"beat": PacketLayout(self._width, ClassMeta), "large": 1}))
        out, leaving = stage.i, stage.o.payload
        m.d.comb += [
            self.o.payload.eq(leaving.beat),
            self.o.valid.eq(stage.o.valid & ~leaving.large),
            stage.o.ready.eq(self.o.ready | leaving.large),
            self.ahead.eq(stage.following.beat.meta),
            self.stat_large.eq(stage.o.valid & leaving.large & leaving.beat.last
                               & ~leaving.beat.discard),
        ]

        # The header dword in this beat, if it is here.
        words = [i.payload.data.word_select(n, 32) for n in range(lanes)]
        plain = Signal(lanes)
        m.d.comb += plain.eq(Cat(word[5:8] != 4 for word in words))
        word = Signal(32)
        m.d.comb += word.eq(one_hot_mux(lowest_bit(plain), words))
        cls, units = credits_of(m, word)
        now, meta = Signal(ClassMeta), Signal(ClassMeta)
        m.d.comb += [
            now.row.eq(i.payload.meta.row), now.life.eq(i.payload.meta.life),
            now.cls.eq(cls), now.units.eq(units),
        ]

        # Beats of prefixes wait aside.
        deep = MAX_END_END_PREFIXES // lanes
        aside = [Signal(layout, name=f"aside{n}", reset_less=True) for n in range(deep)]
        count, shown = Signal(range(deep + 1)), Signal(range(deep + 1))
        known, replays, was_large = Signal(), Signal(), Signal()
        found, large = Signal(), Signal()
        # Whether the beat behind those of prefixes has been examined, and has the header.
        examined, header_here = Signal(), Signal()
        m.d.sync += [examined.eq(i.valid & ~known & (count != 0) & ~examined),
                     header_here.eq(found)]
        m.d.comb += [
            found.eq(plain.any() | i.payload.last | (count == deep)),
            # By registers alone. With beats aside, the one behind them waits until they have left.
            i.ready.eq((count == 0) & out.ready | examined & ~header_here),
        ]
        if self._largest is not None:
            m.d.comb += large.eq(units > self._largest)

        def show(beat, meta, large):
            return [*(out.payload.beat[k].eq(beat[k]) for k, _ in layout),
                    out.payload.beat.meta.eq(meta), out.payload.large.eq(large)]

        with m.If(known & replays):
            m.d.comb += [*show(Array(aside)[shown] if deep else i.payload, meta, was_large),
                         out.valid.eq(1)]
            with m.If(out.ready):
                m.d.sync += shown.eq(shown + 1)
                with m.If(shown + 1 == count):
                    m.d.sync += [replays.eq(0), count.eq(0), shown.eq(0)]
        with m.Elif(known):
            m.d.comb += [*show(i.payload, meta, was_large), out.valid.eq(i.valid)]
            with m.If(i.valid & i.ready & i.payload.last):
                m.d.sync += known.eq(0)
        with m.Elif(count == 0):
            with m.If(found):
                m.d.comb += [*show(i.payload, now, large), out.valid.eq(i.valid)]
                with m.If(i.valid & i.ready):
                    m.d.sync += [known.eq(~i.payload.last), was_large.eq(large), meta.eq(now)]
            with m.Else():
                self._set_aside(m, aside, count)
        with m.Elif(examined & header_here):
            m.d.sync += [known.eq(1), replays.eq(1), was_large.eq(large), meta.eq(now)]
        with m.Else():
            self._set_aside(m, aside, count)
        return m

    def _set_aside(self, m, aside, count):
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += count.eq(count + 1)
            for n, beat in enumerate(aside):
                with m.If(count == n):
                    m.d.sync += [beat[k].eq(self.i.payload[k]) for k, _ in beat.shape()]
