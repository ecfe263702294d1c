"""From received frames to TLPs, events and reports to the link.

Ref: docs/wire-format.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream import PacketSignature, check_width, connect
from .format import ACK_ENTRIES, DropCause
from .frame_judge import FrameJudge
from .frame_walker import FrameWalker
from .frame_window import FrameWindow
from .header_check import HeaderCheck
from .record_check import RecordCheck
from .tlp_store import TlpStore
from .types import Committed, Credit, Event, FrameHeader, TlpMeta, Verdict

__all__ = ["Depacketizer"]


class Depacketizer(wiring.Component):
    """Receives DXF frames; a frame takes effect whole, or is dropped whole and counted.

    Every rule of the wire format is checked before the frame's ACK, credits, event or TLPs act:
    EtherType, version, HCRC, type, zero fields, count, credit class, exact length, padding, the
    CRC-32C of each record (with its binding word) or of the body, and the link's verdict. Of the
    types, TLP, ACK and EVENT are acted upon; HELLO, HELLO_ACK, SACK, PROBE, FENCE, MGMT, HDR and
    DATA are dropped and counted (``stat_unhandled``) after the check of their header: nothing
    handles them yet.

    Order: frames are judged in the order they came. ``header`` is offered as soon as it is checked
    and the frame before it was dropped, or its ``committed`` (and ``event``) taken. TLPs leave in
    the order of their frames and records. An event is offered when all TLPs of older frames have
    left, and before any of a younger frame; so a receiver that blocks ``o`` blocks events.

    Latency: from the last beat of a frame to the first beat of its first TLP eight cycles at widths
    to 128 and ten at others, if the verdict was there and ``o`` is free; one more for each further
    record in the last beat. For a frame so short that its header is the last to be checked, with a
    verdict in the cycle of ``header``: 8, 8, 9, 10 and 11 cycles at 32, 64, 128, 256 and 512 bits.

    Throughput: the header takes ``ceil(8 or 10 dwords / lanes)`` cycles, each record
    ``ceil((TLP + 1 dwords) / lanes)``, what follows the last record one or more. At 32 and 64 bits
    that is one beat per cycle but for one or two cycles per record and frame; at wide beats several
    records that share a beat take a cycle each. ``i.ready`` falls meanwhile.

    Back-pressure: a frame waits for space if frames before it occupy the memory. One that does not
    fit in an empty memory is dropped and counted (``stat_overflow``); up to ``depth - 2`` beats of
    TLPs (each TLP starts a beat) always fit.

    Parameters
    ----------
    width : int
        Data bits per beat.
    split : bool
        The split form (HDR and DATA) is received too. Not there yet: must be false.
    depth : int
        Beats of TLP memory; a power of two, at least 4.

    Members
    -------
    i : packet stream
        Frames from destination MAC on, without FCS; ``discard`` if the FCS was wrong.
    header : stream of :class:`~.types.FrameHeader`
        Sound headers, one verdict is wanted for each. Its frame may still turn out bad.
    verdict : stream of :class:`~.types.Verdict`
    o : packet stream with meta :class:`~.types.TlpMeta`
        TLPs without their CRC.
    event : stream of :class:`~.types.Event`
    committed : stream of :class:`~.types.Committed`
        One for each frame that took effect.
    credits : array of 3 :class:`~.types.Credit`
        The entries of an ACK frame, valid while ``committed`` reports it.
    stat_frames : 1
        Pulse: a frame took effect.
    stat_<cause> : 1
        One for each :class:`~.format.DropCause`, in small letters; pulse: a frame was dropped.
    """

    def __init__(self, width, *, split=False, depth):
        check_width(width)
        if split is not False:
            raise ValueError(f"split must be False, not {split!r}")
        self._width = width
        self._depth = depth
        self._store = TlpStore(width, depth=depth)
        super().__init__({
            "i": In(PacketSignature(width)),
            "header": Out(stream.Signature(FrameHeader)),
            "verdict": In(stream.Signature(Verdict)),
            "o": Out(PacketSignature(width, TlpMeta)),
            "event": Out(stream.Signature(Event)),
            "committed": Out(stream.Signature(Committed)),
            "credits": Out(data.ArrayLayout(Credit, ACK_ENTRIES)),
            "stat_frames": Out(1),
            **{f"stat_{cause.name.lower()}": Out(1) for cause in DropCause},
        })

    def elaborate(self, platform):
        m = Module()
        width = self._width
        m.submodules.window = window = FrameWindow(width)
        m.submodules.walker = walker = FrameWalker(width)
        m.submodules.headers = headers = HeaderCheck()
        m.submodules.records = records = RecordCheck(width)
        m.submodules.store = store = self._store
        m.submodules.judge = judge = FrameJudge(width)

        connect(m, wiring.flipped(self.i), window.i)
        connect(m, headers.o, judge.i)
        connect(m, judge.judge, store.judge)
        connect(m, store.o, wiring.flipped(self.o))
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
            judge.drained.eq(store.drained),
            walker.judged.eq(judge.judged),
            self.credits.eq(judge.credits),
            self.stat_frames.eq(judge.stat_frames),
            *(getattr(self, f"stat_{cause.name.lower()}").eq(judge.dropped[cause])
              for cause in DropCause),
        ]
        return m
