"""From received frames to TLPs, events and reports to the link.

Ref: docs/reference/wire-format.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.opening.received_body import ReceivedBody
from dxpu.fabric.wire.format import ACK_ENTRIES, DropCause
from dxpu.fabric.wire.header_check import HeaderCheck
from dxpu.fabric.wire.types import Credit, Event, FrameHeader, Hello
from dxpu.rows import TlpMeta
from dxpu.stream import PacketSignature, check_width, connect

from .frame_judge import FrameJudge
from .frame_walker import FrameWalker
from .frame_window import FrameWindow
from .open_tlps import OpenTlps, PartMeta
from .reassembler import Reassembler
from .record_check import RecordCheck
from .tlp_store import TlpStore
from .types import TLP_DWORDS, Committed, Verdict

__all__ = ["Depacketizer"]


def _dropped(cause):
    """Frames that were dropped for a cause."""
    if cause == DropCause.FCS:
        return Counted("Stays 0: frames with a wrong FCS are dropped, and counted, by the MAC.")
    return Counted("Frames dropped; the cause is that name in DropCause "
                   "(docs/reference/wire-format.md).")


class Depacketizer(wiring.Component):
    """Receives DXF frames; a frame takes effect whole, or is dropped whole and counted.

    Every rule of the wire format is checked before the frame's ACK, credits, event or TLPs act:
    EtherType, version, HCRC, type, zero fields, count, credit class, exact length, padding, the
    CRC-32C of each record (with its binding word) or of the body, and the link's verdict. Frames of
    types that :func:`~dxpu.fabric.wire.frame_types.handled` does not name are dropped and counted
    (``stat_unhandled``) after the check of their header.

    With ``split``, TLPs of ``assemblies`` peers and streams are put together at a time, in between
    any other frames. A DATA frame takes effect only if it goes on where the TLP of its peer and
    stream stands, with the same session tag and row, and its CRC, over the whole TLP up to there,
    is right; else it is dropped (``stat_length``, ``stat_record``). A frame that is dropped or
    refused changes nothing, so that its repetition, if the link has one, completes the TLP; where
    there is none, the TLP never becomes whole. It is given up (``stat_abandoned``) when a HDR or
    TLP frame of its peer and stream takes effect, or when one more peer starts a TLP and no other
    was longer without a part. A TLP leaves when its last DATA took effect, in the order of the
    frames. One larger than ``depth - 2`` beats, or than any TLP may be, is dropped with its HDR
    (``stat_overflow``); the DATA frames of others always fit.

    Order: frames are judged in the order they came. ``header`` is offered as soon as it is there,
    while it is checked, and the frame before it was dropped, or its ``committed`` (and ``event``)
    taken. TLPs leave in
    the order of their frames and records. An event is offered when all TLPs of older frames have
    left, and before any of a younger frame; so a receiver that blocks ``o`` blocks events.

    Latency: from the last beat of a frame to the first beat of its first TLP eight cycles at widths
    to 256 and nine at 512, if the verdict was there and ``o`` is free; one more for each further
    record in the last beat. For a frame so short that its header is the last to be checked, with a
    verdict in the cycle of ``header``: 9 and 10 cycles at 256 and 512 bits.

    Throughput: the header takes ``ceil(8 or 10 dwords / lanes)`` cycles, each record
    ``ceil((TLP + 1 dwords) / lanes)``, what follows the last record one or more. At 32 and 64 bits
    that is one beat per cycle but for one or two cycles per record and frame; at wide beats several
    records that share a beat take a cycle each. ``i.ready`` falls meanwhile. HDR and DATA frames do
    not overlap with the judgement of the frame before; their TLP is read twice.

    Back-pressure: a frame waits for space if frames before it occupy the memory. One that does not
    fit in an empty memory is dropped and counted (``stat_overflow``); up to ``depth - 2`` beats of
    TLPs (each TLP starts a beat) always fit.

    Parameters
    ----------
    width : int
        Data bits per beat.
    split : bool
        The split form (HDR and DATA) is received too.
    selective : bool
        Words of SACKs are read; frames may be held. Not with ``split``.
    keyed : bool
        HELLO_DONE is handled.
    depth : int
        Beats of TLP memory; a power of two, at least 4.
    assemblies : int
        TLPs in the split form that may be under way at a time; one for each session is enough. Each
        takes block RAM for a largest TLP (4132 bytes), or ``depth - 2`` beats.

    Members
    -------
    i : packet stream
        Frames from destination MAC on, without FCS. One that ends with ``discard`` was taken back:
        it has no effect, and is not counted.
    header : stream of :class:`~dxpu.fabric.wire.types.FrameHeader`
        One verdict is wanted for each. The header may still turn out to be damaged, and its frame
        bad: then the verdict counts for nothing (``taken_back``), or the frame is dropped.
    verdict : stream of :class:`~.types.Verdict`
    o : packet stream with meta :class:`~dxpu.rows.TlpMeta`
        TLPs without their CRC.
    event : stream of :class:`~dxpu.fabric.wire.types.Event`
    committed : stream of :class:`~.types.Committed`
        One for each frame that took effect. The header on it is that of each frame in question,
        until the frame has acted or was dropped, and in the cycle of its ``stat_*``.
    credits : array of 3 :class:`~dxpu.fabric.wire.types.Credit`
        The entries of an ACK frame, valid while ``committed`` reports it.
    hello : :class:`~dxpu.fabric.wire.types.Hello`
        The body of a HELLO or HELLO_ACK, valid while ``committed`` reports it, and with
        ``stat_refused``.
    keep, came_at, came_word
        Only with ``keyed``. Of the
        :class:`~dxpu.fabric.opening.received_body.ReceivedBody`: to be kept is the body of
        the frame that ``committed`` reports.
    words, request_number, word : 1, 1, 64
        Of a SACK, valid while ``committed`` reports it. The word only if ``selective``.
    judged, bad, held, taken_back, room, crowded, took : 1
        Of the :class:`~.frame_judge.FrameJudge`.
    drained : 1
        No TLP of a frame that took effect is inside.
    stat_frames : 1
        Pulse: a frame took effect.
    stat_<cause> : 1
        One for each :class:`~dxpu.fabric.wire.format.DropCause`, in small letters; pulse: a frame
        was dropped.
    stat_abandoned : 1
        Only with ``split``. Pulse: a TLP in the split form was given up before it was whole.
    """

    def __init__(self, width, *, split=False, selective=False, keyed=False, depth, assemblies=4):
        check_width(width)
        self._keyed = keyed
        self._selective = selective
        if not isinstance(split, bool):
            raise TypeError(f"split must be a bool, not {split!r}")
        if not isinstance(assemblies, int) or assemblies < 1:
            raise ValueError(f"assemblies must be a positive integer, not {assemblies!r}")
        self._width = width
        self._split = split
        self._assemblies = assemblies
        self._store = TlpStore(width, depth=depth,
                               meta=PartMeta(assemblies) if split else TlpMeta)
        self._rows = min(-(-TLP_DWORDS // (width // 32)), depth - 2)  # beats of an assembly
        super().__init__({
            "i": In(PacketSignature(width)),
            "header": Out(stream.Signature(FrameHeader)),
            "verdict": In(stream.Signature(Verdict)),
            "o": Out(PacketSignature(width, TlpMeta)),
            "event": Out(stream.Signature(Event)),
            "committed": Out(stream.Signature(Committed)),
            "credits": Out(data.ArrayLayout(Credit, ACK_ENTRIES)),
            "hello": Out(Hello),
            **({"keep": In(1), "came_at": In(5), "came_word": Out(16)} if keyed else {}),
            "words": Out(1),
            "request_number": Out(1),
            "word": Out(64),
            "judged": Out(1),
            "bad": Out(1),
            "held": Out(1),
            "taken_back": Out(1),
            "room": In(1),
            "crowded": Out(1),
            "took": Out(1),
            "drained": Out(1),
            "stat_frames": Out(Counted("Frames that took effect.")),
            **{f"stat_{cause.name.lower()}": Out(_dropped(cause)) for cause in DropCause},
            **({"stat_abandoned": Out(Counted(
                "TLPs in the split form that were given up before they were whole."))}
               if split else {}),
        })

    def elaborate(self, platform):
        m = Module()
        width = self._width
        m.submodules.window = window = FrameWindow(width)
        m.submodules.walker = walker = FrameWalker(
            width, split=self._split, keyed=self._keyed)
        m.submodules.headers = headers = HeaderCheck(
            width, split=self._split, keyed=self._keyed)
        m.submodules.records = records = RecordCheck(width, split=self._split)
        m.submodules.store = store = self._store
        m.submodules.judge = judge = FrameJudge(
            width, selective=self._selective, split=self._split)

        if self._keyed:
            m.submodules.opening = opening = ReceivedBody(width)
            m.d.comb += [
                opening.piece_valid.eq(walker.piece.valid & ~walker.piece.record),
                opening.piece_first.eq(walker.piece.first),
                opening.piece_data.eq(walker.piece.data), opening.keep.eq(self.keep),
                opening.came_at.eq(self.came_at), self.came_word.eq(opening.came_word),
            ]
        connect(m, wiring.flipped(self.i), window.i)
        connect(m, headers.o, judge.i)
        connect(m, judge.header, wiring.flipped(self.header))
        connect(m, wiring.flipped(self.verdict), judge.verdict)
        connect(m, judge.committed, wiring.flipped(self.committed))
        connect(m, judge.event, wiring.flipped(self.event))
        m.d.comb += [
            *(getattr(walker, k).eq(getattr(window, k))
              for k in ("data", "have", "ended", "discard", "enough")),
            window.take.eq(walker.take),
            window.clear.eq(walker.clear),
            headers.raw.eq(walker.header),
            headers.valid.eq(walker.header_valid),
            judge.early.eq(walker.header_valid),
            walker.header_taken.eq(headers.taken),
            records.piece.eq(walker.piece),
            store.piece.eq(walker.piece),
            judge.piece.eq(walker.piece),
            walker.room.eq(store.room),
            walker.hopeless.eq(store.hopeless),
            judge.result.eq(walker.result),
            judge.done.eq(records.done),
            judge.bad_record.eq(records.bad_record),
            judge.bad_body.eq(records.bad_body),
            store.judge.valid.eq(judge.judge.valid),
            store.judge.payload.keep.eq(judge.judge.payload.keep),
            judge.judge.ready.eq(store.judge.ready),
            walker.judged.eq(judge.judged),
            self.credits.eq(judge.credits),
            self.hello.eq(judge.hello),
            *(getattr(self, k).eq(getattr(judge, k))
              for k in ("words", "request_number", "word", "judged", "bad", "held", "taken_back",
                        "crowded", "took")),
            self.drained.eq(judge.drained),
            judge.room.eq(self.room),
            self.stat_frames.eq(judge.stat_frames),
            *(getattr(self, f"stat_{cause.name.lower()}").eq(judge.dropped[cause])
              for cause in DropCause),
        ]
        if self._split:
            self._reassemble(m, walker, records, store, judge)
        else:
            connect(m, store.o, wiring.flipped(self.o))
            m.d.comb += [
                store.judge.payload.meta.row.eq(judge.judge.payload.row),
                judge.drained.eq(store.drained),
            ]
        return m

    def _reassemble(self, m, walker, records, store, judge):
        """The split form: what is open, and the memory behind the store."""
        m.submodules.open = tlps = OpenTlps(
            self._width, count=self._assemblies, largest=self._rows * (self._width // 32))
        m.submodules.reassembler = reassembler = Reassembler(
            self._width, count=self._assemblies, rows=self._rows)
        connect(m, store.o, reassembler.i)
        connect(m, reassembler.o, wiring.flipped(self.o))
        m.d.comb += [
            tlps.now.eq(judge.now),
            tlps.part.eq(walker.part),
            tlps.piece.eq(walker.piece),
            tlps.row.eq(judge.judge.payload.row),
            tlps.took.eq(judge.took),
            walker.resumable.eq(judge.present),
            records.resume.eq(tlps.resume),
            *(getattr(judge, k).eq(getattr(tlps, k))
              for k in ("misplaced", "other_row", "oversized")),
            store.judge.payload.meta.eq(tlps.meta),
            judge.drained.eq(store.drained & reassembler.idle),
            self.stat_abandoned.eq(tlps.stat_abandoned),
        ]
