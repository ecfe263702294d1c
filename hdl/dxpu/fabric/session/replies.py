"""When a peer is told what has arrived, or that something is missing.

Ref: docs/explanation/link.md; docs/reference/wire-format.md, "ACK and SACK"
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.contexts import Owned, Scan
from dxpu.fabric.send.types import Reply
from dxpu.fabric.wire.frame_types import FrameType

__all__ = ["Cause", "CauseKind", "Replies"]


class CauseKind(enum.Enum, shape=2):
    """What became of a frame."""

    #: It took effect, and is to be acknowledged.
    TOOK = 0
    #: It came before.
    OLD = 1
    #: Frames before it are missing; it was dropped.
    GAP = 2
    #: It came ahead of its turn.
    AHEAD = 3


class Cause(data.Struct):
    """A frame of ``session`` came that is to be answered.

    Members
    -------
    kind, session : :class:`CauseKind`, 6
    urgent : 1
        At once.
    numbered : 1
        It has a number, and took effect.
    seq : 24
        Its number, if frames before it are missing.
    row, dst_slot, src_slot, path : 6, 8, 8, 4
        Of the answer.
    """

    kind: CauseKind
    session: 6
    urgent: 1
    numbered: 1
    seq: 24
    row: 6
    dst_slot: 8
    src_slot: 8
    path: 4


class Act(enum.Enum, shape=3):
    """What happens to a session."""

    SENT = 0
    TOOK = 1
    REFUSED = 2
    OPEN = 3
    EXAMINED = 4


class Replies(wiring.Component):
    """ACK and SACK frames that nothing else carries.

    A frame is acknowledged by one of ours within ``ack_delay``, or at once if it came before or is
    urgent, unless another one goes to its session meanwhile. While a frame is missing, each frame
    behind the gap brings a NAK, so that the loss of a NAK costs no more than the time to the next
    frame. All of them are one request, and the peer obeys it once. Another request begins each time
    that the frames behind the gap begin anew, since then the missing one was sent again and lost
    again. For a frame that came ahead of its turn there is a SACK with a word; so is every other
    answer while any of these is kept.

    Sessions that have something to be said are looked at in turn; that takes a cycle for each of
    the others, and four for each of them.

    Parameters
    ----------
    sessions, paths : int
    block : bool
        State of the sessions is in block RAM (:class:`~dxpu.fabric.contexts.Owned`).

    Members
    -------
    ack_delay : 16
        In cycles.
    took, refused : stream of :class:`Cause`
        Frames that took effect, and that did not.
    sent, sent_session, sent_row, whole, all_told : 1, number of a session, 6, 1, 1
        Strobe, at most one in four cycles: a frame with our ACK leaves; ``whole``: it acknowledges
        all that took effect; ``all_told``: it tells all limits of its row that are to be told.
    open : stream of numbers of sessions
        Nothing is to be said any more.
    early, coming : ``sessions``
        Frames are kept for later; one of them is about to take effect, and nobody can say yet that
        it is not missing.
    others : stream of :class:`~dxpu.fabric.send.types.Reply`
        What somebody else wants to be said.
    reply : stream of :class:`~dxpu.fabric.send.types.Reply`
    stale : 1
        ``reply`` need not be said any more: it is an ACK, and a frame of its row that left while it
        waited acknowledges all that took effect, and tells all limits.
    """

    def __init__(self, *, sessions, paths, block=True):
        self._sessions, self._paths, self._block = sessions, paths, block
        number = range(sessions)
        super().__init__({
            "ack_delay": In(16, init=125),
            "took": In(stream.Signature(Cause)),
            "refused": In(stream.Signature(Cause)),
            "sent": In(1),
            "sent_session": In(number),
            "sent_row": In(6),
            "whole": In(1),
            "all_told": In(1),
            "open": In(stream.Signature(number)),
            "early": In(sessions),
            "coming": In(sessions),
            "others": In(stream.Signature(Reply)),
            "reply": Out(stream.Signature(Reply)),
            "stale": Out(1),
        })
        self._word = data.StructLayout({
            # An ACK is to be sent, from `until` on; it is on its way to leave.
            "pending": 1, "until": 17, "asked": 1,
            # A NAK, or a SACK with a word, is to be sent.
            "nak": 1, "sack": 1,
            # A frame is missing; the newest that came after it; the request to go back to it.
            "missing": 1, "newest": 24, "request": 1,
            "row": 6, "dst_slot": 8, "src_slot": 8, "path": range(max(2, paths)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Owned(self._word, depth=self._sessions, block=self._block)
        m.submodules.scan = scan = Scan(count=self._sessions)
        session, act, acting = words.session, Signal(Act), words.acts
        does = {a: Signal(name=f"does_{a.name.lower()}") for a in Act}
        # The frame that left last, until it is picked; what is acted upon is its copy.
        leaves, left, covers, whole = Signal(), Signal.like(session), Signal(), Signal()
        asks = {
            Act.SENT: (leaves, left),
            Act.TOOK: (self.took.valid, self.took.payload.session),
            Act.REFUSED: (self.refused.valid, self.refused.payload.session),
            Act.OPEN: (self.open.valid, self.open.payload),
        }
        m.d.comb += words.pick.eq(scan.at)
        with m.If(words.ready):
            m.d.comb += words.picks.eq(scan.found)
            m.d.sync += [act.eq(Act.EXAMINED), whole.eq(covers)]
            for n, (kind, (wish, who)) in enumerate(asks.items()):
                with (m.If if n == 0 else m.Elif)(wish):
                    m.d.comb += [words.pick.eq(who), words.picks.eq(1)]
                    m.d.sync += act.eq(kind)
        with m.If(self.sent):
            m.d.sync += [leaves.eq(1), left.eq(self.sent_session), covers.eq(self.whole)]
        with m.Elif(words.ready):
            m.d.sync += leaves.eq(0)
        m.d.sync += [signal.eq(words.loads & (act == a)) for a, signal in does.items()]
        now, then = Signal(self._word), Signal(self._word)
        m.d.comb += [
            self.took.ready.eq(does[Act.TOOK]), self.refused.ready.eq(does[Act.REFUSED]),
            self.open.ready.eq(does[Act.OPEN]),
            scan.put.eq(acting), scan.where.eq(session), scan.skip.eq(does[Act.EXAMINED]),
            scan.bit.eq(then.pending | then.nak | then.sack),
            now.eq(words.word), words.put.eq(acting), words.new.eq(then),
            then.eq(now),
        ]
        with m.If(does[Act.SENT]):
            m.d.comb += [then.pending.eq(now.pending & ~whole), then.asked.eq(0)]
        with m.If(does[Act.OPEN]):
            m.d.comb += then.eq(0)
        clock = Signal(17)
        m.d.sync += clock.eq(clock + 1)
        self._caused(m, does, now, then, clock)
        self._examine(m, does[Act.EXAMINED], session, now, then, clock)
        return m

    def _caused(self, m, does, now, then, clock):
        """A frame came."""
        cause, kind = Signal(Cause), CauseKind
        m.d.comb += cause.eq(Mux(does[Act.TOOK], self.took.payload.as_value(),
                                 self.refused.payload.as_value()))
        with m.If(does[Act.TOOK] | does[Act.REFUSED]):
            m.d.comb += [then[name].eq(cause[name])
                         for name in ("row", "dst_slot", "src_slot", "path")]
            with m.Switch(cause.kind):
                with m.Case(kind.TOOK, kind.OLD):
                    m.d.comb += then.pending.eq(1)
                    with m.If((cause.kind == kind.OLD) | cause.urgent):
                        m.d.comb += then.until.eq(clock)
                    with m.Elif(~now.pending):
                        m.d.comb += then.until.eq(clock + self.ack_delay)
                with m.Case(kind.GAP):
                    # Behind a gap the numbers rise, until the sender has gone back.
                    m.d.comb += [then.missing.eq(1), then.newest.eq(cause.seq), then.nak.eq(1)]
                    with m.If(~now.missing | ~(now.newest - cause.seq)[23]):
                        m.d.comb += then.request.eq(~now.request)
                with m.Case(kind.AHEAD):
                    m.d.comb += then.sack.eq(1)
            with m.If(cause.numbered):
                m.d.comb += [then.missing.eq(0), then.nak.eq(0)]

    def _examine(self, m, does, session, now, then, clock):
        """Whether the session has something to say, and what that is."""
        reply, others = self.reply, self.others
        says, late, word = Signal(), Signal(), Signal()
        m.d.comb += [
            late.eq(~(clock - now.until)[16]),
            says.eq(does & ~reply.valid & ~self.coming.bit_select(session, 1)
                    & (now.pending & late & ~now.asked | now.nak | now.sack)),
            word.eq((now.sack | self.early.bit_select(session, 1)) & ~now.nak),
        ]
        with m.If(does & late):
            # It stays late however long it waits: the clock comes round.
            m.d.comb += then.until.eq(clock)
        with m.If(says):
            m.d.comb += [then.asked.eq(1), then.nak.eq(0), then.sack.eq(now.sack & now.nak)]
            m.d.sync += [
                reply.valid.eq(1),
                reply.payload.type.eq(Mux(now.nak | word, FrameType.SACK, FrameType.ACK)),
                reply.payload.session.eq(session),
                reply.payload.words.eq(word),
                reply.payload.request.eq(now.request),
                *(reply.payload[name].eq(now[name])
                  for name in ("row", "dst_slot", "src_slot", "path")),
            ]
        with m.Elif(reply.valid):
            with m.If(reply.ready):
                m.d.sync += reply.valid.eq(0)
        with m.Elif(others.valid):
            m.d.comb += others.ready.eq(1)
            m.d.sync += [reply.valid.eq(1), reply.payload.eq(others.payload)]
        ours = Signal()  # the reply is for what took effect
        with m.If(~reply.valid | reply.ready):
            m.d.sync += [self.stale.eq(0), ours.eq(says & ~now.nak & ~word)]
        with m.Elif(ours & self.sent & self.whole & self.all_told
                    & (self.sent_session == reply.payload.session)
                    & (self.sent_row == reply.payload.row)):
            m.d.sync += self.stale.eq(1)
