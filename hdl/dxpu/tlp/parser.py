"""TLPs in, TLPs out, with everything a switch may look at beside each beat."""

from amaranth import *
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.queue import PacketQueue
from dxpu.stream import PacketLayout, PacketSignature, connect

from .check import HeaderCheck
from .header import HeaderCapture, RawHeader, decode
from .types import NO_LIMIT, Malformed, TlpClass, TlpInfo

__all__ = ["Ingress", "Parser"]

#: Beats and headers held while a header is collected and checked. The header of a TLP with all
#: prefixes ends in its 8th dword, and is known three cycles later: 16 covers the narrowest stream,
#: and is what one distributed memory cell holds.
DEPTH = 16


class Parser(wiring.Component):
    """Decodes and checks each TLP (PCIe Base 5.0, 2.2 and 2.3).

    Packets leave as they came, in order, with a :class:`~dxpu.tlp.types.TlpInfo` that is valid on
    every beat. A malformed TLP leaves with ``discard`` set on its last beat, and is counted; one
    that already came with ``discard`` keeps it and is not counted, whatever it looks like. Any
    sequence of beats is taken: a packet that is shorter or longer than its header says ends with
    its ``last``, and the next one is served as if nothing had been.

    Latency four cycles from the beat that completes the header (or the packet) to the first beat on
    ``o``; throughput one beat per cycle at every width, also for packets of one beat.

    A TLP may carry four end-to-end prefixes of any type, and no local one. What is a rule for
    whom stands in docs/reference/tlp-checks.md.

    Parameters
    ----------
    width : int
        Data bits per beat.
    completer : bool
        For a device that completes requests, not for a port of a switch; as of
        :class:`~dxpu.tlp.check.HeaderCheck`.

    Members
    -------
    i : packet stream
    max_payload : 3
        With the first beat of a TLP: Max_Payload_Size of the port that it comes to, as in Device
        Control. :data:`~dxpu.tlp.types.NO_LIMIT` if nothing is connected.
    o : packet stream with :class:`~dxpu.tlp.types.TlpInfo`
    stat_malformed : 1
        Pulse: a malformed TLP was found; not for one that came with ``discard``.
    malformed_cause : :class:`~dxpu.tlp.types.Malformed`
        Valid with ``stat_malformed``.
    malformed_header : 4 dwords
        In lane order, valid with ``stat_malformed``; unspecified where the TLP had ended, and the
        fourth in a header of three.
    """

    def __init__(self, width, *, completer=False):
        self._layout = PacketLayout(width)
        self._check = HeaderCheck(completer=completer)
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
        m.submodules.check = check = self._check
        m.submodules.join = join = _Join(width)
        m.submodules.beats = beats = fifo.SyncFIFO(width=self._layout.size, depth=DEPTH)
        # Never full: each header is of a packet with a beat in `beats`, or of the one coming in.
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
    """Puts the decoded header beside each beat of its packet, and measures the packet."""

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

        # Dwords that are still to come, counting this beat; `excess` once they have run out.
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


class Ingress(wiring.Component):
    """Whole, well-formed TLPs only: :class:`Parser`, then a store-and-forward queue.

    Latency: six cycles after the last beat was taken. Throughput one beat per cycle. Malformed
    TLPs, those that came with ``discard`` and those larger than the queue are removed whole.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of the queue; a power of two. It must hold the largest TLP.

    Members
    -------
    i : packet stream
    max_payload : 3
    o : packet stream with :class:`~dxpu.tlp.types.TlpInfo`
    stat_malformed, malformed_cause, malformed_header
        As in :class:`Parser`.
    released : 1
        Pulse: a TLP has left, to ``o`` or, malformed or too large for the queue, to nowhere; one
        for each that came without ``discard``.
    released_cls, released_dwords : :class:`~dxpu.tlp.types.TlpClass`, 11
        Its class and the dwords of its payload, as its header says; valid with ``released``.
    stat_discarded : 1
        Pulse: a TLP was removed, malformed or discarded by the source.
    stat_overflow : 1
        Pulse: a TLP larger than the queue was removed.
    """

    def __init__(self, width, *, depth):
        self._parser = Parser(width)
        self._queue = PacketQueue(width, depth=depth, meta=TlpInfo)
        super().__init__({
            "i": In(PacketSignature(width)),
            "max_payload": In(3, init=NO_LIMIT),
            "o": Out(PacketSignature(width, TlpInfo)),
            "stat_malformed": Out(Counted("TLPs from the host that were malformed; dropped.")),
            "malformed_cause": Out(Malformed),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
            "released_strobe": Out(1),
            "released_cls": Out(TlpClass),
            "released_dwords": Out(11),
            "stat_discarded": Out(Counted(
                "TLPs from the host that were dropped, malformed or discarded by their source.")),
            "stat_overflow": Out(Counted(
                "TLPs from PCIe that were larger than the buffer; dropped.")),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = self._parser
        m.submodules.queue = queue = self._queue
        connect(m, wiring.flipped(self.i), parser.i)
        connect(m, queue.o, wiring.flipped(self.o))
        self._release(m)
        m.d.comb += [
            parser.max_payload.eq(self.max_payload),
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_cause.eq(parser.malformed_cause),
            self.malformed_header.eq(parser.malformed_header),
            self.stat_discarded.eq(queue.stat_discarded),
            self.stat_overflow.eq(queue.stat_overflow),
        ]
        return m

    def _release(self, m):
        """One malformed TLP waits until none leaves the queue; the next one waits before it. So
        does one that is too large: the queue was empty, so what leaves ends before another such
        one has come."""
        came, queue, o = self._parser.o, self._queue, self.o
        waits, cls, dwords = Signal(), Signal(TlpClass), Signal(11)
        large, large_cls, large_dwords = Signal(), Signal(TlpClass), Signal(11)
        bad, held, may = Signal(), Signal(), Signal()
        m.d.comb += [
            bad.eq(self._parser.stat_malformed | held),
            may.eq(~(bad & waits)),
            queue.i.payload.eq(came.payload),
            queue.i.valid.eq(came.valid & may),
            came.ready.eq(queue.i.ready & may),
        ]
        taken, leaves = Signal(), Signal()
        m.d.comb += [
            taken.eq(came.valid & came.ready),
            leaves.eq(o.valid & o.ready & o.payload.last),
            self.released_strobe.eq(leaves | waits | large),
            self.released_cls.eq(Mux(leaves, o.payload.meta.cls, Mux(waits, cls, large_cls))),
            self.released_dwords.eq(Mux(leaves, o.payload.meta.payload_dwords,
                                        Mux(waits, dwords, large_dwords))),
        ]
        with m.If(~leaves & ~waits):
            m.d.sync += large.eq(0)
        # What is malformed ends with `discard` here.
        with m.If(queue.stat_overflow & ~came.payload.discard):
            m.d.sync += [large.eq(1), large_cls.eq(came.payload.meta.cls),
                         large_dwords.eq(came.payload.meta.payload_dwords)]
        m.d.sync += held.eq(bad & ~taken)
        with m.If(~leaves):
            m.d.sync += waits.eq(0)
        with m.If(bad & taken):
            m.d.sync += [waits.eq(1), cls.eq(came.payload.meta.cls),
                         dwords.eq(came.payload.meta.payload_dwords)]
