"""From a TLP with an error to Header Log and TLP Prefix Log.

Ref: PCIe Base 5.0, 6.2.4.4, 7.8.4.8, 7.8.4.12
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import encode, lowest_bit
from dxpu.queue import Queue
from dxpu.stream import check_width
from dxpu.switch.config.port_map import UPSTREAM, function_map
from dxpu.tlp.types import swap_bytes

from .types import HEADERS_KEPT, PREFIXES, ErrorOrigin, ErrorReport, HeaderReader, LogWrite

__all__ = ["HeaderCapture", "HeaderWriter"]

HEADER_DWORDS = 4


class HeaderCapture(wiring.Component):
    """Keeps prefixes and headers of TLPs that pass, in a few slots of LUT RAM, until it is known
    whether they go into a log and while they are written there.

    A slot has a header, or prefixes; a TLP that has both takes two slots, the first of them even. A
    TLP that finds none free is not kept. Slots are free again in the cycle after their strobe.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    data : ``width``
    beat : number
        Index of the beat in its TLP; stays at its largest value.
    prefixed : 1
        The TLP has prefixes.
    strobe : 1
        ``data`` is a beat of a TLP that is to be kept.
    last : 1
        With ``strobe``: its last one.
    kept : 1
        With ``last``: the TLP is kept, in ``slot``.
    slot : number
    reader : :class:`~.types.HeaderReader`
    """

    #: Dwords that are kept of a TLP, at most.
    DWORDS = PREFIXES + HEADER_DWORDS

    def __init__(self, width):
        self._lanes = check_width(width) // 32
        super().__init__({
            "data": In(width),
            "beat": In(range(self.DWORDS + 2)),
            "prefixed": In(1),
            "strobe": In(1),
            "last": In(1),
            "kept": Out(1),
            "slot": Out(range(HEADERS_KEPT)),
            "reader": In(HeaderReader()),
        })

    def elaborate(self, platform):
        m = Module()
        wide = min(self._lanes, self.DWORDS)
        beats = max(1, HEADER_DWORDS // wide)  # of a slot
        m.submodules.words = words = Memory(
            shape=32 * wide, depth=HEADERS_KEPT * beats, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        used, double = Signal(HEADERS_KEPT), Signal(HEADERS_KEPT // 2)
        free, begun, able = Signal(HEADERS_KEPT), Signal.like(self.slot), Signal()
        two = self.prefixed & (beats * wide < self.DWORDS)
        even = Cat(bit for n in range(HEADERS_KEPT // 2)
                   for bit in (~used[2 * n] & ~used[2 * n + 1], C(0, 1)))
        last_beat = Mux(two, 2 * beats, beats)
        m.d.comb += [
            free.eq(lowest_bit(Mux(two, even, ~used))),
            self.slot.eq(begun),
            self.kept.eq(able),
            write.addr.eq(self.slot * beats + self.beat),
            write.data.eq(self.data),
            write.en.eq(self.strobe & self.kept & (self.beat < last_beat)),
            read.addr.eq(self.reader.slot * beats + self.reader.dword // self._lanes),
            self.reader.word.eq(
                Array(read.data.word_select(n, 32) for n in range(wide))[
                    self.reader.dword % self._lanes]),
        ]
        with m.If(self.beat == 0):
            m.d.comb += [self.slot.eq(encode(free)), self.kept.eq(free.any())]
        with m.If(self.strobe):
            m.d.sync += [begun.eq(self.slot), able.eq(self.kept)]
        taken = self.strobe & self.last & self.kept
        for n in range(HEADERS_KEPT // 2):
            comes, leaves = Signal(2, name=f"comes{n}"), Signal(2, name=f"leaves{n}")
            m.d.comb += [
                comes.eq(Mux(taken, ((1 << self.slot) >> 2 * n)[:2], 0)),
                leaves.eq(self.reader.free.word_select(n, 2)),
            ]
            m.d.sync += used.word_select(n, 2).eq(
                used.word_select(n, 2) & ~(leaves | (leaves[0] & double[n]) << 1)
                | comes | (comes[0] & two) << 1)
            with m.If(comes[0]):
                m.d.sync += double[n].eq(two)
        return m


class HeaderWriter(wiring.Component):
    """Writes headers and prefixes into the logs, one dword at a time, and then says so.

    Registers of prefixes that a TLP does not have read 0, but they are not written if it has none:
    then TLP Prefix Log Present is 0 and what they read means nothing. The header of a malformed TLP
    comes without prefixes; an error without a TLP has a header of 0.

    Each takes 4 cycles, 8 with prefixes, and those in which ``o`` waits; first come, first served.

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    i : stream of :class:`~.types.ErrorReport`
        An error that is in no TLP of the two directions has no prefixes.
    readers : array of 2 :class:`~.types.HeaderReader`
        Of the two directions.
    header, blank : 4 dwords, 1
        Of the error that is in no TLP of the two directions, in lane order; with ``blank`` it has
        none.
    other_done : 1
        Strobe: ``header`` is not needed any more.
    o : stream of :class:`~.types.LogWrite`
    done : stream of 6 bits
        Functions whose log is whole.
    """

    def __init__(self, ports):
        self._ports = ports
        self._map = function_map(UPSTREAM)  # the downstream ports have the same
        super().__init__({
            "i": In(stream.Signature(ErrorReport)),
            "readers": Out(HeaderReader()).array(2),
            "header": In(data.ArrayLayout(32, HEADER_DWORDS)),
            "blank": In(1),
            "other_done": Out(1),
            "o": Out(stream.Signature(LogWrite)),
            "done": Out(stream.Signature(6)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.reports = reports = Queue(data.StructLayout({
            "origin": ErrorOrigin, "slot": range(HEADERS_KEPT), "function": 6,
            "prefix_dwords": 3}), depth=2 * HEADERS_KEPT)
        report, i = reports.o.p, self.i.p
        of_slot, of_none = report.origin == ErrorOrigin.SLOT, report.origin == ErrorOrigin.OTHER
        m.d.comb += [
            *(reports.i.p[k].eq(i[k]) for k in ("origin", "slot", "function", "prefix_dwords")),
            reports.i.valid.eq(self.i.valid),
            self.i.ready.eq(reports.i.ready),
        ]

        dword, prefix, three = Signal(range(HEADER_DWORDS)), Signal(), Signal()
        word, log = Signal(32), self._map.dword("Header Log 0")
        prefixes = self._map.dword("TLP Prefix Log 0")
        last, ends = Signal(), Signal()
        for reader, origin in zip(self.readers, (ErrorOrigin.HOST, ErrorOrigin.SLOT), strict=True):
            m.d.comb += [
                reader.slot.eq(report.slot),
                reader.dword.eq(Mux(prefix, dword, report.prefix_dwords + dword)),
                reader.free.eq(Mux(ends & (report.origin == origin), 1 << report.slot, 0)),
            ]
        m.d.comb += [
            word.eq(Mux(of_none, self.header[dword],
                        Mux(of_slot, self.readers[1].word, self.readers[0].word))),
            self.other_done.eq(ends & of_none),
            self.o.p.function.eq(report.function),
            self.o.p.register.eq(Mux(prefix, prefixes, log) + dword),
            self.o.p.value.eq(swap_bytes(word)),
            last.eq((dword == HEADER_DWORDS - 1) & (prefix | (report.prefix_dwords == 0))),
            self.o.valid.eq(reports.o.valid & ~(last & self.done.valid)),
            ends.eq(self.o.valid & self.o.ready & last),
            reports.o.ready.eq(ends),
        ]
        with m.If(Mux(prefix, dword >= report.prefix_dwords, three & (dword == 3))
                  | of_none & self.blank):
            m.d.comb += self.o.p.value.eq(0)
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += dword.eq(dword + 1)
            with m.If(~prefix & (dword == 0)):
                m.d.sync += three.eq(~word[5])  # bit 0 of Fmt: 4 dwords
            with m.If(dword == HEADER_DWORDS - 1):
                m.d.sync += prefix.eq(~last)
        with m.If(ends):
            m.d.sync += [self.done.valid.eq(1), self.done.payload.eq(report.function)]
        return m
