"""Parser of TLPs: header fields beside each beat, malformed TLPs marked."""

from amaranth import *
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout, PacketSignature, connect

from .check import HeaderCheck
from .header import HeaderCapture, RawHeader, decode
from .types import NO_LIMIT, Malformed, TlpInfo

__all__ = ["Parser"]

#: Beats and headers that wait while a header is collected and checked. The header of a TLP with all
#: prefixes ends in its 8th dword and is decoded three cycles later, so 16 is enough for the
#: narrowest stream. It is also the depth of one distributed RAM.
DEPTH = 16


class Parser(wiring.Component):
    """Decodes and checks each TLP (PCIe Base 5.0, 2.2 and 2.3).

    TLPs leave unchanged and in order, with a :class:`~dxpu.tlp.types.TlpInfo` that is valid on
    every beat. A malformed TLP leaves with ``discard`` on its last beat and is counted. A TLP that
    came with ``discard`` keeps it and is not counted. Any sequence of beats is taken: a TLP ends
    with ``last``, whatever length its header says, and the next one is not affected.

    Latency four cycles from the beat that completes the header, or the TLP, to the first beat on
    ``o``. Throughput one beat per cycle at every width, also for TLPs of one beat.

    A TLP may have four end-to-end prefixes of any type, and no local one.
    docs/reference/tlp-checks.md lists the checks of each receiver.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : packet stream
        Raw TLPs.
    max_payload : 3
        Max_Payload_Size of the port at which the TLP arrived, as encoded in Device Control; sampled
        with the first beat. :data:`~dxpu.tlp.types.NO_LIMIT` if nothing is connected.
    o : packet stream with meta :class:`~dxpu.tlp.types.TlpInfo`
        The same TLPs, decoded.
    stat_malformed : 1
        Pulse: a malformed TLP was found that had come without ``discard``.
    malformed_cause : :class:`~dxpu.tlp.types.Malformed`
        First check that failed; valid with ``stat_malformed``.
    malformed_header : 4 dwords
        Header of that TLP in lane order; valid with ``stat_malformed``. Dwords behind the end of
        the TLP, and the fourth of a header of three, are unspecified.
    """

    def __init__(self, width):
        self._layout = PacketLayout(width)
        super().__init__({
            "i": In(PacketSignature(width)),
            "max_payload": In(3, init=NO_LIMIT),
            "o": Out(PacketSignature(width, TlpInfo)),
            "stat_malformed": Out(1),
            "malformed_cause": Out(Malformed),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })

    def elaborate(self, platform):
        m = Module()
        width = self._layout.width
        m.submodules.capture = capture = HeaderCapture(width)
        m.submodules.check = check = HeaderCheck()
        m.submodules.join = join = _Join(width)
        m.submodules.beats = beats = fifo.SyncFIFO(width=self._layout.size, depth=DEPTH)
        # Never full: the packet of each header has a beat in `beats`, or is the one coming in.
        m.submodules.headers = headers = fifo.SyncFIFO(
            width=Shape.cast(RawHeader).width, depth=DEPTH)

        m.d.comb += [
            self.i.ready.eq(beats.w_rdy),
            beats.w_data.eq(self.i.payload),
            beats.w_en.eq(self.i.valid),
            capture.beat.eq(self.i.payload),
            capture.take.eq(self.i.valid & self.i.ready),
            capture.max_payload.eq(self.max_payload),
            check.strobe.eq(capture.strobe),
            check.words.eq(capture.words),
            check.prefixes.eq(capture.prefixes),
            check.payload_limit.eq(capture.payload_limit),
            check.truncated.eq(capture.truncated),
            check.bad_prefix.eq(capture.bad_prefix),
            headers.w_data.eq(check.header),
            headers.w_en.eq(check.valid),
            join.beat.eq(beats.r_data),
            join.header.eq(headers.r_data),
            join.available.eq(beats.r_rdy & headers.r_rdy),
            beats.r_en.eq(join.take),
            headers.r_en.eq(join.take & join.beat.last),
            self.stat_malformed.eq(join.stat_malformed),
            self.malformed_cause.eq(join.malformed_cause),
            self.malformed_header.eq(join.malformed_header),
        ]
        connect(m, join.o, wiring.flipped(self.o))
        return m


class _Join(wiring.Component):
    """Joins the decoded header with each beat of its packet, and checks the packet's length."""

    def __init__(self, width):
        self._layout = PacketLayout(width)
        super().__init__({
            "beat": In(self._layout),
            "header": In(RawHeader),
            "available": In(1),
            "take": Out(1),
            "o": Out(PacketSignature(width, TlpInfo)),
            "stat_malformed": Out(1),
            "malformed_cause": Out(Malformed),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })

    def elaborate(self, platform):
        m = Module()
        beat, o = self.beat, self.o
        info = Signal(TlpInfo)
        decode(m, self.header, info)

        # Dwords from this beat on, as the header says; `excess` after the last of them.
        left, rest = Signal(12), Signal(12, reset_less=True)
        excess = Signal()
        over, wrong, bad = Signal(), Signal(), Signal()
        m.d.comb += [
            left.eq(Mux(beat.first, self.header.dwords, rest)),
            over.eq((excess & ~beat.first) | (left <= self._layout.lanes)),
            wrong.eq((left != beat.dwords) | (excess & ~beat.first)),
            bad.eq((self.header.cause != Malformed.NONE) | wrong),
            self.take.eq(self.available & (o.ready | ~o.valid)),
        ]
        m.d.sync += self.stat_malformed.eq(self.take & beat.last & ~beat.discard & bad)
        m.d.sync += self.malformed_cause.eq(
            Mux(self.header.cause == Malformed.NONE, Malformed.LENGTH, self.header.cause))
        words = Signal.like(self.header.words, reset_less=True)
        m.d.sync += words.eq(self.header.words)
        m.d.comb += self.malformed_header.eq(words)
        with m.If(self.take):
            m.d.sync += [rest.eq(left - self._layout.lanes), excess.eq(over)]
        payload = Signal(PacketLayout(self._layout.width, TlpInfo), reset_less=True)
        m.d.comb += o.payload.eq(payload)
        with m.If(o.ready | ~o.valid):
            m.d.sync += [
                o.valid.eq(self.available),
                payload.data.eq(beat.data),
                payload.dwords.eq(beat.dwords),
                payload.first.eq(beat.first),
                payload.last.eq(beat.last),
                payload.discard.eq(beat.last & (beat.discard | bad)),
                payload.meta.eq(info),
            ]
        return m
