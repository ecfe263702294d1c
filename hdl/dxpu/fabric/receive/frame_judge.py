"""Brings together all that is known about a frame, and lets it act or drops it."""

from functools import reduce
from operator import and_, or_

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import ACK_ENTRIES, CREDIT_BYTES, SACK_WORD_BYTES, DropCause
from dxpu.fabric.wire.frame_fields import body_field, credit_fields, hello_fields, natural
from dxpu.fabric.wire.frame_types import LIMITED, Body, FrameType, types_with
from dxpu.fabric.wire.header_check import CheckedHeader
from dxpu.fabric.wire.types import Credit, Event, FrameHeader, Hello
from dxpu.priority import lowest_bit
from dxpu.stream import check_width

from .types import Committed, Piece, Verdict, Verdicts

__all__ = ["FrameJudge"]


class FrameJudge(wiring.Component):
    """Asks the link about each header, waits for the end of the frame, decides, reports.

    The link looks the session up while the header is checked, so it is asked about headers that are
    not sound, too; its answer to those counts for nothing. One frame at a time: the next header is
    offered when the frame before it was dropped, or its ``committed`` and ``event`` were taken. An
    EVENT takes effect only when all TLPs of the frames before it have left. A good frame that is to
    be held has no effect; it is for somebody else to bring it again.

    Parameters
    ----------
    width : int
        Data bits of a piece.
    selective : bool
        Words of SACKs are read.
    split : bool
        There are HDR and DATA frames: a frame is judged two cycles later at the earliest.

    Members
    -------
    i : stream of :class:`~dxpu.fabric.wire.header_check.CheckedHeader`
    early : 1
        The header is on ``i``; what is wrong with it is known when that is valid.
    piece : :class:`~.types.Piece`
        Bodies are taken from here.
    result : :class:`~.types.Verdicts`
    done, bad_record, bad_body
        From :class:`~.record_check.RecordCheck`.
    judged, bad, held, taken_back : 1
        Pulses: the frame is done with; it had no effect, as it was dropped or taken back; it is to
        be held; the verdict on it counts for nothing, as it was taken back or its header is not
        sound.
    room : 1
        It can be held. If not, it is dropped as one that the link has refused.
    crowded : 1
        Pulse: that happened to a frame that was good otherwise.
    misplaced, other_row, oversized : in
        Of HDR and DATA frames, from :class:`~.open_tlps.OpenTlps`; zero if there are none.
    now, present : :class:`~dxpu.fabric.wire.types.FrameHeader`, 1
        The header of the frame in question.
    took : 1
        Pulse: the frame takes effect.
    judge : stream of {keep, row}
        To :class:`~.tlp_store.TlpStore`.
    drained : in
        The store is empty.
    header, verdict, committed, event
        See :class:`~.depacketizer.Depacketizer`.
    credits : array of 3 :class:`~dxpu.fabric.wire.types.Credit`
        Entries of an ACK; valid with its ``committed``.
    hello : :class:`~dxpu.fabric.wire.types.Hello`
        Body of a HELLO or HELLO_ACK; valid with its ``committed``.
    words, request_number, word : 1, 1, 64
        Of a SACK: it has a word; number of its request to go back; the word. Valid with its
        ``committed``.
    dropped : one bit per :class:`~dxpu.fabric.wire.format.DropCause`
        Pulse: a frame was dropped.
    stat_frames : 1
        Pulse: a frame took effect.
    """

    def __init__(self, width, *, selective=False, split=False):
        self._lanes = check_width(width) // 32
        self._selective, self._split = selective, split
        super().__init__({
            "i": In(stream.Signature(CheckedHeader)),
            "early": In(1),
            "piece": In(Piece(width)),
            "result": In(Verdicts),
            "done": In(1),
            "bad_record": In(1),
            "bad_body": In(1),
            "judged": Out(1),
            "bad": Out(1),
            "held": Out(1),
            "taken_back": Out(1),
            "room": In(1),
            "crowded": Out(1),
            "misplaced": In(1),
            "other_row": In(1),
            "oversized": In(1),
            "now": Out(FrameHeader),
            "present": Out(1),
            "took": Out(1),
            "judge": Out(stream.Signature(data.StructLayout({"keep": 1, "row": 6}))),
            "drained": In(1),
            "header": Out(stream.Signature(FrameHeader)),
            "verdict": In(stream.Signature(Verdict)),
            "committed": Out(stream.Signature(Committed)),
            "event": Out(stream.Signature(Event)),
            "credits": Out(data.ArrayLayout(Credit, ACK_ENTRIES)),
            "hello": Out(Hello),
            "words": Out(1),
            "request_number": Out(1),
            "word": Out(64),
            "dropped": Out(len(DropCause)),
            "stat_frames": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        #: Types whose body leaves by a stream of its own, with the row that the verdict named.
        handed = {FrameType.EVENT: self.event}
        body = self._capture_body(m)
        checked, present, sound, verdict = self._ask(m)
        header = checked.header

        # The end of the frame, checked.
        ended, bad_record, bad_body = Signal(), Signal(), Signal()
        with m.If(self.done):
            m.d.sync += [
                ended.eq(1), bad_record.eq(self.bad_record), bad_body.eq(self.bad_body)]

        # The frame may have ended before the link answers: what it is must be known by then.
        kind = Signal(FrameType)
        m.d.comb += kind.eq(Mux(present, header.type, self.i.payload.header.type))
        is_a = {t: kind == t for t in FrameType}
        is_event, is_sack, is_data = (
            reduce(or_, (is_a[t] for t in types_with(kind)))
            for kind in (Body.EVENT, Body.SACK, Body.DATA))
        refused = verdict.valid & ~verdict.payload.accept
        # Two cycles after the body, which is known to be right, or not, three cycles after it.
        bad_fields, bad_words = Signal(), Signal()
        words, request = (body_field(body, Body.SACK, name) for name in ("count", "request"))
        m.d.sync += [
            bad_fields.eq(reduce(or_, self._wrong_fields(body, is_a)) | is_sack & (request > 1)),
            bad_words.eq(is_sack & (words > 1)),
        ]
        hold, crowded = Signal(), Signal()
        m.d.comb += [
            hold.eq(verdict.valid & verdict.payload.hold),
            crowded.eq(hold & ~self.room),
            self.words.eq(words[0]),
            self.request_number.eq(request[0]),
        ]
        if self._selective:
            m.d.comb += self.word.eq(natural(body, Body.SACK.size, SACK_WORD_BYTES))
        wrong = Signal(len(DropCause))
        m.d.comb += wrong.eq(Cat({
            DropCause.FCS: 0,  # those are dropped, and counted, by the MAC
            DropCause.RUNT: self.result.runt,
            DropCause.ETHERTYPE: checked.ethertype,
            DropCause.VERSION: checked.version,
            DropCause.HCRC: checked.hcrc,
            DropCause.TYPE: checked.type,
            DropCause.FIELD: checked.field,
            DropCause.LENGTH: self.result.length | bad_words,
            DropCause.PADDING: self.result.padding,
            # The CRC of DATA runs from its TLP's beginning, which is not known behind a gap.
            DropCause.RECORD: bad_record & ~self.misplaced & ~(is_data & refused),
            DropCause.BODY: bad_body | bad_fields,
            DropCause.OVERFLOW: self.result.overflow | self.oversized,
            DropCause.REFUSED: refused | crowded,
            DropCause.UNHANDLED: checked.unhandled,
        }[cause] for cause in DropCause))

        # A part in the wrong place: only if the link takes it, since a repeated one is in none.
        stray = self.misplaced | self.other_row
        good = ~(wrong.any() | stray | self.result.taken_back)
        m.d.sync += [self.dropped.eq(0), self.stat_frames.eq(0)]
        m.d.comb += [
            self.now.eq(header),
            self.present.eq(present),
            self.took.eq(self.judge.valid & self.judge.ready & good & ~hold),
            self.judge.payload.keep.eq(good & ~hold),
            self.judge.payload.row.eq(verdict.payload.row),
            self.committed.payload.row.eq(verdict.payload.row),
            self.committed.payload.header.eq(header),
        ]
        for kind, out in handed.items():
            m.d.comb += [
                out.payload.row.eq(verdict.payload.row),
                *(out.payload[field.name].eq(body_field(body, kind.body, field.name))
                  for field in kind.body.fields if field.name != "zero"),
            ]
        m.d.comb += [self.credits[n][k].eq(v) for n in range(ACK_ENTRIES)
                     for k, v in credit_fields(body, n * CREDIT_BYTES).items()]
        m.d.comb += [self.hello[k].eq(v) for k, v in hello_fields(body).items()]
        # What is open in the split form is known two cycles after the header.
        settled, before, known = Signal(), Signal(), Signal()
        if self._split:
            m.d.sync += [before.eq(present & ~self.judged), known.eq(before & ~self.judged)]
            m.d.comb += settled.eq(known)
        else:
            m.d.comb += settled.eq(present)
        with m.FSM(name="judge"):
            with m.State("Wait"):
                with m.If(settled & ended & verdict.valid):
                    m.d.comb += self.judge.valid.eq(~good | hold | ~is_event | self.drained)
                with m.If(self.judge.valid & self.judge.ready):
                    m.d.sync += self.stat_frames.eq(good & ~hold)
                    with m.If(~self.result.taken_back):
                        m.d.sync += self.dropped.eq(Mux(
                            stray & ~wrong.any(), 1 << DropCause.LENGTH, lowest_bit(wrong)))
                        m.d.comb += self.crowded.eq(
                            crowded & (lowest_bit(wrong) == 1 << DropCause.REFUSED))
                    m.d.comb += [
                        self.held.eq(good & hold),
                        self.taken_back.eq(self.result.taken_back | ~sound),
                    ]
                    with m.If(good & ~hold):
                        m.d.sync += [self.committed.valid.eq(1), *(
                            out.valid.eq(is_a[kind]) for kind, out in handed.items())]
                        m.next = "Report"
                    with m.Else():
                        m.d.comb += [self.judged.eq(1), self.bad.eq(~good)]
            with m.State("Report"):
                outs = (self.committed, *handed.values())
                for out in outs:
                    with m.If(out.ready):
                        m.d.sync += out.valid.eq(0)
                with m.If(reduce(and_, (out.ready | ~out.valid for out in outs))):
                    m.d.comb += self.judged.eq(1)
                    m.next = "Wait"
        with m.If(self.judged):
            m.d.sync += [ended.eq(0), present.eq(0), verdict.valid.eq(0)]
        return m

    def _ask(self, m):
        """The present header, whether it is sound, and the link's verdict on it."""
        checked, present, sound = Signal(CheckedHeader, reset_less=True), Signal(), Signal()
        verdict = stream.Signature(Verdict).create(path=("answer",))
        asked, answered, answers = Signal(), Signal(), Signal()
        payload = self.i.payload
        m.d.comb += [
            self.header.payload.eq(payload.header),
            self.header.valid.eq(self.early & ~present & ~asked),
            self.verdict.ready.eq(~present & ~answered),
            answers.eq(self.verdict.valid & self.verdict.ready),
            self.i.ready.eq(~present & (answered | answers)),
        ]
        with m.If(self.header.valid & self.header.ready):
            m.d.sync += asked.eq(1)
        with m.If(answers):
            m.d.sync += [answered.eq(1), verdict.payload.eq(self.verdict.payload)]
        good = ~(payload.ethertype | payload.version | payload.hcrc | payload.type | payload.field
                 | payload.unhandled)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [checked.eq(payload), present.eq(1), sound.eq(good), asked.eq(0),
                         answered.eq(0), verdict.valid.eq(1)]
            with m.If(~good):
                m.d.sync += [verdict.payload.accept.eq(1), verdict.payload.hold.eq(0)]
        return checked, present, sound, verdict

    def _wrong_fields(self, body, is_a):
        """Yields each reason to drop a body for its fields: an entry has the class of another
        place, or a zero field is not zero."""
        for kind in dict.fromkeys(t.body for t in FrameType):
            if kind == Body.LIMITS:  # and of SACK, which begins with the same
                yield reduce(or_, (is_a[t] for t in LIMITED)) & Cat(
                    natural(body, n * CREDIT_BYTES, 1) != n for n in range(ACK_ENTRIES)).any()
            if any(field.name == "zero" for field in kind.fields):
                yield reduce(or_, (is_a[t] for t in types_with(kind))) & (
                    body_field(body, kind, "zero").any())

    def _capture_body(self, m):
        """The body of the frame, without its CRC; zero-filled or cut to the size of the longest
        that counts."""
        lanes, piece = self._lanes, self.piece
        size = max(Body.SACK.size + SACK_WORD_BYTES * self._selective, Body.HELLO.size)
        body = Signal(8 * size, reset_less=True)
        number, count = Signal(4), Signal(4)
        m.d.comb += number.eq(Mux(piece.first, 0, count))
        with m.If(piece.valid & ~piece.record):
            m.d.sync += count.eq(number + 1)
            for n in range(size // 4):
                with m.If(number == n // lanes):
                    m.d.sync += body.word_select(n, 32).eq(piece.data.word_select(n % lanes, 32))
        return body
