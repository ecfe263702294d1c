"""Parser of TLPs whose header is needed when they end: behind a store-and-forward queue."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout, PacketSignature

from .check import HeaderCheck
from .header import HeaderCapture, RawHeader, TlpHeader
from .types import NO_LIMIT, Malformed

__all__ = ["TailParser"]


class TailParser(wiring.Component):
    """Checks each TLP as a :class:`~dxpu.tlp.parser.Parser` does (PCIe Base 5.0, 2.2 and 2.3), and
    gives its header beside its last beat.

    TLPs leave unchanged and in order. A malformed TLP leaves with ``discard`` on its last beat and
    is counted. A TLP that came with ``discard`` keeps it and is not counted. Any sequence of beats
    is taken.

    Beats pass a line of two registers, next to the capture and the check of the header; all stop
    together while ``o`` is not taken. Latency two cycles, throughput one beat per cycle.
    ``i.ready`` depends combinationally on ``o.ready``.

    Parameters
    ----------
    width : int
        Data bits per beat.
    meta : shape-like, optional
        Side information of the TLPs; it stays with them.
    completer : bool
        Checks are those of a device that completes requests, not those of a switch port
        (:class:`~dxpu.tlp.check.HeaderCheck`).

    Members
    -------
    i : packet stream
        Raw TLPs.
    max_payload : 3
        That of :class:`~dxpu.tlp.parser.Parser`.
    o : packet stream
        The same TLPs.
    tlp_header : :class:`~dxpu.tlp.header.TlpHeader`
        Header of the TLP on ``o``; valid with its last beat.
    stat_malformed : 1
        Pulse: a malformed TLP that had come without ``discard`` leaves.
    malformed_cause : :class:`~dxpu.tlp.types.Malformed`
        First check that failed; valid with ``stat_malformed``.
    malformed_header : 4 dwords
        That of :class:`~dxpu.tlp.parser.Parser`.
    """

    def __init__(self, width, *, meta=None, completer=False):
        self._layout = PacketLayout(width, meta)
        self._check = HeaderCheck(completer=completer)
        super().__init__({
            "i": In(PacketSignature(width, meta)),
            "max_payload": In(3, init=NO_LIMIT),
            "o": Out(PacketSignature(width, meta)),
            "tlp_header": Out(TlpHeader),
            "stat_malformed": Out(1),
            "malformed_cause": Out(Malformed),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })

    def elaborate(self, platform):
        m = Module()
        i, o, layout = self.i, self.o, self._layout
        move = Signal()
        m.submodules.capture = EnableInserter(move)(capture := HeaderCapture(layout.width))
        m.submodules.check = EnableInserter(move)(check := self._check)
        m.submodules.size = size = EnableInserter(move)(size := _Size(layout.lanes))

        # The header of the beat in `late` has been captured and checked, if that beat completes it
        # or ends the TLP; the next header cannot take its place before the next beat is there.
        early, late = (Signal(layout, reset_less=True, name=name) for name in ("early", "late"))
        early_valid, late_valid = Signal(), Signal()
        header = RawHeader(check.header)
        wrong, bad = Signal(), Signal()
        m.d.comb += [
            move.eq(~late_valid | o.ready),
            i.ready.eq(move),
            *(capture.beat[k].eq(i.p[k]) for k, _ in PacketLayout(layout.width)),
            capture.take.eq(i.valid),  # while it moves
            capture.max_payload.eq(self.max_payload),
            check.strobe.eq(capture.strobe),
            check.words.eq(capture.words),
            check.prefixes.eq(capture.prefixes),
            check.payload_limit.eq(capture.payload_limit),
            check.truncated.eq(capture.truncated),
            check.bad_prefix.eq(capture.bad_prefix),
            size.strobe.eq(early_valid),
            size.first.eq(early.first),
            size.beat_dwords.eq(early.dwords),
            wrong.eq(size.packet_dwords != header.dwords),
            bad.eq((header.cause != Malformed.NONE) | wrong),
            *(o.p[k].eq(late[k]) for k, _ in layout),
            o.p.discard.eq(late.last & (late.discard | bad)),
            o.valid.eq(late_valid),
            self.tlp_header.words.eq(header.words),
            self.tlp_header.prefixes.eq(header.prefixes),
            self.stat_malformed.eq(late_valid & o.ready & late.last & ~late.discard & bad),
            self.malformed_cause.eq(
                Mux(header.cause == Malformed.NONE, Malformed.LENGTH, header.cause)),
            self.malformed_header.eq(header.words),
        ]
        with m.If(move):
            m.d.sync += [
                early_valid.eq(i.valid), early.eq(i.payload),
                late_valid.eq(early_valid), late.eq(early),
            ]
        return m


class _Size(wiring.Component):
    """Counts the dwords of each packet. Latency one cycle.

    Members
    -------
    strobe, first, beat_dwords : 1, 1, number
        A beat, whether it is the first of its packet, and its dwords.
    packet_dwords : 12
        Dwords of the packet up to that beat; wrong, but larger than those of any TLP, from 2048 on.
    """

    def __init__(self, lanes):
        self._lanes = lanes
        super().__init__({"strobe": In(1), "first": In(1), "beat_dwords": In(range(lanes + 1)),
                          "packet_dwords": Out(12)})

    def elaborate(self, platform):
        m = Module()
        before, start = Signal(12), Signal(12)
        m.d.comb += start.eq(Mux(self.first, 0, before))
        with m.If(self.strobe):
            m.d.sync += self.packet_dwords.eq(start + self.beat_dwords)
            with m.If(~start[11]):
                m.d.sync += before.eq(start + self._lanes)
        return m
