"""Sessions of a proxy: who the peers are, which tags they gave, which frame is next.

Ref: docs/wire-format.md; docs/architecture.md, "Link"

A frame takes effect only if all before it did. One that comes ahead of its turn is refused, and
asked for with all behind it (go-back-N), or held for later (selective repeat). What is sent again,
and when, is the :class:`~dxpu.fabric.retransmit.Retransmitter`'s.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..priority import encode, first_one, lowest_bit, one_hot_mux, round_robin
from .credits import Numbered, closed_generation
from .early import WINDOW, EarlyMap
from .format import ACK_ENTRIES, SEQUENCED, FrameType
from .resequencer import FramePlace
from .types import (
    EPOCH_BITS, LIFE_BITS, NO_ROW, Committed, FrameHeader, FrameRoute, Limit, LinkState, PeerRow,
    Reply, RouteRequest, Session, Verdict,
)

__all__ = ["Link"]


def takes_number(frame_type):
    """Whether a frame of this type consumes a sequence number."""
    return Cat(frame_type == t for t in sorted(SEQUENCED)).any()


def is_hello(frame_type):
    """Whether a frame of this type is outside of any session."""
    return (frame_type == FrameType.HELLO) | (frame_type == FrameType.HELLO_ACK)


class Link(wiring.Component):
    """Answers what a frame to be sent must carry, and whether a received frame may take effect.

    A route is answered four cycles after its request, a verdict three cycles after its header.
    Frames are numbered in the order of the requests. There is no route for TLPs of a row that is
    not bound any more, or of an earlier life of it, so what was queued then never leaves, and none
    for a session that has failed. The verdict on a frame is given only when the ``committed``
    report of every frame before it was taken.

    Replies are made for frames that took effect and are not acknowledged otherwise, for frames that
    came before, and a NAK (SACK without words) for one after a gap. There is one NAK for each
    missing frame, another one each time that the frames behind it begin anew, since then it was
    sent again and lost again, and another one if they still do not after ``nak_delay``, since then
    the NAK was lost.

    With ``selective``, good frames up to ``window - 1`` ahead are to be held; there is a NAK only
    for those that find no room. For each other one that comes ahead of its turn a SACK with a word
    is sent, as is every other ACK frame while any is held. The one that is due is taken
    only from where it is held. Frames with a number take the paths that they may in turn, but for
    those to avoid, and probes the session's path; a route takes a cycle more.

    HELLO and HELLO_ACK of a known peer are taken if its session wants them, and acknowledge
    nothing; a frame without a number that has the session's ``candidate`` for a tag is taken too,
    and does nothing but confirm the candidate.

    Parameters
    ----------
    rows : int
        Rows of the mapping table, 1 to 63.
    sessions : int
        Sessions at a time.
    paths : int
        Ethernet ports.
    frames : int
        Frames that can be unacknowledged.
    selective, window : bool, int
        Selective repeat; with so many frames from the expected one on.

    Members
    -------
    node : 12
        Our node number.
    ack_delay : 16
        Cycles a received frame may stay unacknowledged while nothing is sent that would carry the
        acknowledgement.
    nak_delay : 16
        Cycles after which a NAK is repeated, or up to twice as many, while frames come that do not
        fit; 0: never. Longer than the peer takes to begin anew.
    rows : array of :class:`PeerRow`
    bound : ``rows``
        Bit n: TLPs of row n may leave.
    lives : array of numbers
        Number of the current life of each row.
    sessions : array of :class:`Session`
    open : ``sessions``
        Strobes: set the session's state back to frame 0, in both directions. What was asked for
        before gets no number any more.
    greets : ``sessions``
        HELLO and HELLO_ACK are taken.
    candidate : array of 16-bit values
        Tag that was offered to the peer and not used yet; 0: none.
    down : ``sessions``
        The session is not open, though it should be.
    heard, greeted, confirmed : ``sessions``
        Strobes, while ``committed`` is taken: a frame of the session took effect; a HELLO or
        HELLO_ACK did; a frame with the candidate's tag did.
    state : array of :class:`LinkState`
    request, route : stream of :class:`RouteRequest` in, :class:`FrameRoute` out
    header, verdict : stream of :class:`FrameHeader` in, :class:`Verdict` out
    committed : stream of :class:`Committed`
    reply : stream of :class:`Reply`
        ACK and SACK frames that nothing else carries.
    fresh : 1
        With ``committed`` taken: its acknowledgement is not older than the newest one.
    numbered, numbered_strobe : :class:`~dxpu.fabric.credits.Numbered`, 1
        An event that begins a life of a row has got its number.
    generations : array of 8-bit values
        Low bits of the generation of each row.
    granting : ``rows``
        Limits of row n are told.
    limit_row, limits, owed, told, told_row, told_mask, want
        Of the :class:`~dxpu.fabric.credits.CreditGrants`, as ``row``, ``due`` and so on.
    unacked, path, failed, epoch, acked, back
        Of the :class:`~dxpu.fabric.retransmit.Retransmitter`.
    words : 1
        The SACK in ``committed`` has a word.
    named : ``sessions``
        Strobes: so it was. Its ACK counted in the same cycle.
    again, held, crowded, holds, place, due, due_place, settled
        Only if ``selective``. Of the :class:`~dxpu.fabric.resequencer.Resequencer` and the
        :class:`~dxpu.fabric.depacketizer.Depacketizer`: the frame that ``header`` belongs to comes
        again; it was held; it was not for want of room; it may be, as far as the link knows, and
        where; a frame is to come again, and which; it does not.
    avoid : array of bit masks
        Only if ``selective``. Of the :class:`~dxpu.fabric.selective.SelectiveRetransmitter`.
    short : 1
        New frames are to be acknowledged at once.
    lost : ``rows``
        The session of row n has failed or is down.
    stat_wrong_node, stat_no_session, stat_wrong_tag, stat_duplicate : 1
        Pulses: a frame was refused, and why.
    stat_gap : 1
        Pulse: a frame was refused because frames before it are missing.
    stat_nak : 1
        Pulse: a NAK took effect.
    """

    def __init__(self, *, rows, sessions=4, paths=2, frames=64, selective=False,
                 window=WINDOW):
        if rows not in range(1, NO_ROW + 1):
            raise ValueError(f"rows must be 1 to {NO_ROW}, not {rows!r}")
        if sessions not in range(1, 65):
            raise ValueError(f"sessions must be 1 to 64, not {sessions!r}")
        self._rows = rows
        self._sessions, self._paths = sessions, paths
        self._early = EarlyMap(sessions=sessions, window=window) if selective else None
        self._window = window
        amount = Shape.cast(range(frames + 1)).width
        super().__init__({
            "node": In(12),
            "ack_delay": In(16, init=125),
            "nak_delay": In(16),
            "rows": In(data.ArrayLayout(PeerRow, rows)),
            "bound": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "sessions": In(data.ArrayLayout(Session, sessions)),
            "open": In(sessions),
            "greets": In(sessions),
            "candidate": In(data.ArrayLayout(16, sessions)),
            "down": In(sessions),
            "heard": Out(sessions),
            "greeted": Out(sessions),
            "confirmed": Out(sessions),
            "of": Out(range(sessions)),
            "state": Out(data.ArrayLayout(LinkState, sessions)),
            "request": In(stream.Signature(RouteRequest)),
            "route": Out(stream.Signature(FrameRoute)),
            "header": In(stream.Signature(FrameHeader)),
            "verdict": Out(stream.Signature(Verdict)),
            "committed": In(stream.Signature(Committed)),
            "reply": Out(stream.Signature(Reply)),
            "fresh": Out(1),
            "numbered": Out(Numbered),
            "numbered_strobe": Out(1),
            "generations": In(data.ArrayLayout(8, rows)),
            "granting": In(rows),
            "limit_row": Out(6),
            "limits": In(data.ArrayLayout(Limit, ACK_ENTRIES)),
            "owed": In(ACK_ENTRIES),
            "told": Out(1),
            "told_row": Out(6),
            "told_mask": Out(ACK_ENTRIES),
            "want": In(stream.Signature(6)),
            "unacked": In(data.ArrayLayout(amount, sessions)),
            "acked": Out(data.ArrayLayout(amount, sessions)),
            "back": Out(sessions),
            "path": In(data.ArrayLayout(max(1, (paths - 1).bit_length()), sessions)),
            "failed": In(sessions),
            "epoch": In(data.ArrayLayout(EPOCH_BITS, sessions)),
            "words": In(1),
            "named": Out(sessions),
            **({
                "again": In(1),
                "held": In(1),
                "crowded": In(1),
                "holds": Out(1),
                "place": Out(FramePlace(sessions, window)),
                "due": Out(1),
                "due_place": Out(FramePlace(sessions, window)),
                "settled": In(sessions),
                "avoid": In(data.ArrayLayout(paths, sessions)),
            } if selective else {}),
            "short": In(1),
            "lost": Out(rows),
            "stat_wrong_node": Out(1),
            "stat_no_session": Out(1),
            "stat_wrong_tag": Out(1),
            "stat_duplicate": Out(1),
            "stat_gap": Out(1),
            "stat_nak": Out(1),
        })

    def _match(self, node, stream):
        """One-hot: the session with this peer and stream."""
        return Cat(s.valid & (s.node == node) & (s.stream == stream) for s in self.sessions)

    def elaborate(self, platform):
        m = Module()
        sent = Signal(self._sessions)        # strobes: a frame with our ACK goes out
        number = Signal(self._sessions)      # strobes: that frame takes a SEQ
        arrived = Signal(self._sessions)     # strobes: a frame took effect
        # Strobes: a frame came again; one is missing.
        self._old, self._gap = Signal(self._sessions), Signal(self._sessions)
        self._seq = Signal(24)                # number after that of the route that is answered
        self._newest = [Signal(24, name=f"newest{n}") for n in range(self._sessions)]
        self._risen = Signal()                # the number that is judged is above the newest one
        self._ahead = Signal(self._sessions)  # one is held
        self._mine = Signal(self._sessions)   # session of the frame that was judged last
        self._far = Signal()                  # it is too far ahead for that
        self._answer_routes(m, sent, number)
        busy = self._take_commits(m, arrived)
        if self._early is not None:
            self._attach_early(m, arrived)
        self._judge_headers(m, busy)
        self._acknowledge(m, sent, arrived)
        gone = Signal(self._sessions)
        m.d.comb += gone.eq(self.failed | self.down)
        m.d.comb += self.lost.eq(Cat(
            (self._match(row.node, row.stream) & gone).any() for row in self.rows))
        for n, state in enumerate(self.state):
            with m.If(number[n]):
                m.d.sync += state.seq.eq(self._seq)
            with m.If(self.open[n]):
                m.d.sync += state.eq(0)
        return m

    def _attach_early(self, m, arrived):
        """What came ahead: the words, and which of these frames is to come again."""
        m.submodules.early = early = self._early
        due, header = Signal(range(self._sessions)), self.committed.payload.header
        m.d.comb += [
            early.took.eq(arrived & takes_number(header.type).replicate(self._sessions)),
            early.stores.eq(self.held),
            early.settled.eq(self.settled),
            early.forget.eq(self.open),
            due.eq(first_one(early.due)),
            self.due.eq(early.due.any()),
            self.due_place.session.eq(due),
            self.due_place.number.eq(Array(s.next for s in self.state)[due]),
        ]

    def _answer_routes(self, m, sent, number):
        request, route = self.request, self.route.payload
        asked = request.payload
        row = Signal(PeerRow)
        select = Signal(self._sessions)
        session, state = Signal(Session), Signal(LinkState)
        path, turn = Signal.like(self.path[0]), Signal.like(self.path[0])
        ways, avoid = Signal(16), Signal(16)  # paths that the frame takes, and does not
        failed, epoch = Signal(), Signal(EPOCH_BITS)
        granting, generation = Signal(), Signal(8)
        limits, due = Signal.like(self.limits), Signal.like(self.owed)
        life, bound, alive = Signal(LIFE_BITS), Signal(), Signal()
        now = Signal(self._sessions)  # the session is what it was when it was selected
        m.d.comb += now.eq(Cat(e == epoch for e in self.epoch))
        grants = (self.granting.bit_select(asked.row, 1) & ~asked.again
                  & (asked.row < self._rows))
        with m.FSM(name="route"):
            with m.State("Idle"):
                m.d.sync += [
                    row.eq(Array(self.rows)[asked.row]),
                    life.eq(Array(self.lives)[asked.row]),
                    bound.eq(self.bound.bit_select(asked.row, 1)),
                ]
                with m.If(request.valid):
                    m.next = "Match"
            with m.State("Match"):
                m.d.sync += [
                    select.eq(Mux(asked.direct, 1 << asked.session,
                                  self._match(row.node, row.stream))),
                    alive.eq(~asked.tlps | bound & (life == asked.life)),
                ]
                with m.If(asked.direct):
                    m.d.sync += [row.slot.eq(asked.dst_slot), row.local_slot.eq(asked.src_slot),
                                 row.paths.eq(asked.paths)]
                m.next = "Select"
            with m.State("Select"):
                m.d.sync += [
                    Value.cast(session).eq(one_hot_mux(select, self.sessions)),
                    Value.cast(state).eq(one_hot_mux(select, self.state)),
                    path.eq(one_hot_mux(select, self.path)),
                    epoch.eq(one_hot_mux(select, self.epoch)),
                    failed.eq((select & self.failed).any()),
                    # In one cycle with the acknowledgement: what a life grants must not go out
                    # with that of the event that begins the next one.
                    granting.eq(grants),
                    generation.eq(Array(self.generations)[asked.row]),
                    limits.eq(self.limits),
                    due.eq(self.owed),
                ]
                # If there is no route the next telling heals it.
                m.d.comb += self.told.eq(grants)
                if self._early is not None:  # in the cycle of `state`: that is its ACK
                    m.d.comb += self._early.route.eq(encode(select))
                    m.d.sync += avoid.eq(one_hot_mux(select, self.avoid))
                    m.d.sync += route.word.eq(self._early.route_word)
                m.next = "Answer" if self._early is None else "Ways"
            if self._early is not None:
                with m.State("Ways"):
                    m.d.sync += ways.eq(Mux((row.paths & ~avoid).any(), row.paths & ~avoid,
                                            row.paths))
                    with m.If(asked.consumes & ~asked.probe):
                        m.d.sync += path.eq(turn)
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.route.valid.eq(1)
                with m.If(self.route.ready):
                    m.d.comb += [
                        request.ready.eq(1),
                        sent.eq(Mux(route.ok & ~asked.hello, select, 0)),
                        number.eq(Mux(asked.consumes & ~asked.again, sent & now, 0)),
                        self.numbered_strobe.eq(number.any() & asked.begins),
                    ]
                    m.next = "Idle"
        # The session's path or, if the frame may not take that, the next one that it may.
        from_there = ways & (Const(~0, 16) << path)[:16]
        if self._early is None:
            m.d.comb += ways.eq(row.paths)
        else:
            with m.If(self.route.valid & self.route.ready & asked.consumes & ~asked.probe):
                m.d.sync += turn.eq(Mux(route.path == self._paths - 1, 0, route.path + 1))
        m.d.comb += [
            route.ok.eq(session.valid & (row.paths != 0) & (asked.hello | (
                (session.tx_tag != 0) & alive & ~failed
                & ~(asked.again & (asked.epoch != epoch))))),
            route.dst_node.eq(session.node),
            route.src_node.eq(self.node),
            route.dst_slot.eq(row.slot),
            route.src_slot.eq(row.local_slot),
            route.path.eq(first_one(Mux(from_there.any(), from_there, ways))),
            route.paths.eq(row.paths),
            route.stream.eq(session.stream),
            route.tag.eq(Mux(asked.hello, asked.tag, session.tx_tag)),
            route.seq.eq(Mux(asked.hello, 0, Mux(asked.again, asked.seq, state.seq))),
            route.ack.eq(Mux(asked.hello, 0, state.next)),
            route.ar.eq(asked.probe | asked.consumes & self.short),
            route.session.eq(encode(select)),
            route.epoch.eq(epoch),
        ]
        # A frame of the row carries one limit that is to be told; an ACK has all of them.
        entry, chosen = route.credits, lowest_bit(due)
        for n, limit in enumerate(limits):
            m.d.comb += [
                entry[n].cls.eq(n),
                entry[n].generation.eq(Mux(granting, generation, closed_generation(generation))),
                entry[n].header_limit.eq(Mux(granting, limit.header, 0)),
                entry[n].data_limit.eq(Mux(granting, limit.data, 0)),
            ]
        m.d.comb += [
            self.limit_row.eq(asked.row),
            route.crx.eq(granting & asked.consumes & due.any()),
            Value.cast(route.credit).eq(one_hot_mux(chosen, entry)),
            self.told_row.eq(asked.row),
            self.told_mask.eq(Mux(asked.consumes, lowest_bit(self.owed), ~0)),
            self.numbered.row.eq(asked.row),
            self.numbered.seq.eq(state.seq),
            self._seq.eq(state.seq + 1),
        ]

    def _take_commits(self, m, arrived):
        """Book frames that took effect; returns "a report is not booked yet"."""
        committed = self.committed
        header = committed.payload.header
        select, one = Signal(self._sessions), Signal(self._sessions)
        hello = is_hello(header.type)
        # The frame has the session's own tag, not the candidate's, and the session is still the
        # same; what of its frames was acknowledged, and was not.
        own, same = Signal(self._sessions), Signal(self._sessions)
        acked, unacked = Signal(24), Signal.like(self.unacked[0])
        m.d.comb += one.eq(self._match(header.src_node, header.stream))
        with m.FSM(name="commit") as fsm:
            with m.State("Idle"):
                m.d.sync += [
                    select.eq(one), self.of.eq(encode(one)), same.eq(~self.open),
                    own.eq(Cat(s.rx_tag == header.tag for s in self.sessions)),
                ]
                with m.If(committed.valid):
                    m.next = "Look"
            with m.State("Look"):
                m.d.sync += [
                    acked.eq(one_hot_mux(select, [s.acked for s in self.state])),
                    unacked.eq(one_hot_mux(select, self.unacked)),
                    same.eq(same & ~self.open),
                ]
                m.next = "Book"
            with m.State("Book"):
                m.d.comb += committed.ready.eq(1)
                with m.If(hello):
                    m.d.comb += self.greeted.eq(select)
                with m.Else():
                    m.d.comb += [
                        arrived.eq(select & own & same),
                        self.confirmed.eq(select & ~own & Cat(
                            c == header.tag for c in self.candidate)),
                    ]
                m.next = "Idle"
        m.d.comb += self.heard.eq(arrived)
        numbered, is_nak = Signal(), Signal()
        named = self.words & (self._early is not None)
        m.d.comb += [
            numbered.eq(takes_number(header.type)),
            is_nak.eq(header.type == FrameType.SACK),
            self.stat_nak.eq(self.back.any()),
        ]
        known, fresh, after = Signal(self._sessions), Signal(24), Signal(24)
        m.d.comb += [
            fresh.eq(header.ack - acked),
            # A forged acknowledgement of what was never sent has no effect.
            known.eq(Mux(fresh <= unacked, arrived, 0)),
            self.fresh.eq(known.any()),
            self.back.eq(Mux(is_nak & (fresh != unacked) & ~named, known, 0)),
            self.named.eq(Mux(is_nak & named, known, 0)),
            after.eq(header.seq + 1),
        ]
        for n, state in enumerate(self.state):
            with m.If(known[n]):
                m.d.comb += self.acked[n].eq(fresh)
                m.d.sync += state.acked.eq(header.ack)
            with m.If(arrived[n] & numbered):
                m.d.sync += state.next.eq(after)
        return committed.valid | ~fsm.ongoing("Idle")

    def _judge_headers(self, m, busy):
        header = self.header.payload
        verdict = self.verdict.payload
        select, here = Signal(self._sessions), Signal()
        rows, used = Signal(self._rows), Cat(r.used for r in self.rows)
        # A released row may still name the peer of another that is in use.
        one = Signal(self._rows)
        m.d.comb += one.eq(Mux((rows & used).any(), rows & used, rows))
        tag, expected, candidate = Signal(16), Signal(24), Signal(16)
        numbered, ahead, hello = Signal(), Signal(24), Signal()
        fits, known = Signal(), Signal()
        judging, newest = Signal(), Signal(24)
        copy = Signal()  # the frame that is expected is held, and this is another one of it
        m.d.comb += [
            fits.eq(Mux(is_hello(header.type), hello,
                        (tag != 0) & (tag == header.tag) | ~numbered & (candidate != 0)
                        & (candidate == header.tag))),
            known.eq(here & select.any()),
        ]
        m.d.comb += [
            numbered.eq(takes_number(header.type)), ahead.eq(header.seq - expected),
            self._risen.eq(~(newest - header.seq)[23]),
        ]
        gap = known & fits & numbered & ~ahead[-1] & (ahead != 0)
        with m.FSM(name="verdict"):
            with m.State("Idle"):
                m.d.sync += [
                    here.eq(header.dst_node == self.node),
                    select.eq(self._match(header.src_node, header.stream)),
                    rows.eq(Cat((r.node == header.src_node) & (r.slot == header.src_slot)
                                & (r.local_slot == header.dst_slot) & (r.stream == header.stream)
                                for r in self.rows)),
                ]
                with m.If(self.header.valid & ~busy):
                    m.next = "Select"
            with m.State("Select"):
                m.d.sync += [
                    tag.eq(one_hot_mux(select & ~self.failed,
                                       [s.rx_tag for s in self.sessions])),
                    candidate.eq(one_hot_mux(select, self.candidate)),
                    hello.eq((select & self.greets).any()),
                    expected.eq(one_hot_mux(select, [s.next for s in self.state])),
                    newest.eq(one_hot_mux(select, self._newest)),
                    verdict.row.eq(Mux(rows.any(), encode(one & -one), NO_ROW)),
                    verdict.hold.eq(0),
                ]
                if self._early is not None:
                    m.d.sync += copy.eq((select & self._early.due).any() & ~self.again)
                m.next = "Judge"
            with m.State("Judge"):
                m.d.comb += judging.eq(1)
                with m.If(~here):
                    m.d.comb += self.stat_wrong_node.eq(1)
                with m.Elif(~select.any()):
                    m.d.comb += self.stat_no_session.eq(1)
                with m.Elif(~fits):
                    m.d.comb += self.stat_wrong_tag.eq(1)
                with m.Elif(numbered & (ahead[-1] | copy & (ahead == 0))):
                    m.d.comb += [self.stat_duplicate.eq(1), self._old.eq(select)]
                m.next = "Answer"
                if self._early is None:
                    with m.If(gap):
                        m.d.comb += [self.stat_gap.eq(1), self._gap.eq(select)]
                else:
                    with m.If(gap):
                        m.next = "Ahead"
                m.d.sync += verdict.accept.eq(
                    known & fits & ~(numbered & ((ahead != 0) | copy)))
            if self._early is not None:
                with m.State("Ahead"):
                    self._judge_ahead(m)
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.verdict.valid.eq(1)
                with m.If(self.verdict.ready):
                    m.d.comb += self.header.ready.eq(1)
                    m.next = "Idle"
        if self._early is not None:
            self._remember_ahead(m, select, ahead, judging)

    def _judge_ahead(self, m):
        """Decide about a frame that came ahead."""
        verdict, early = self.verdict.payload, self._early
        with m.If(self._far):
            # No NAK: the peer would repeat all that is on its way.
            m.d.comb += [self.stat_gap.eq(1), self._ahead.eq(self._mine)]
        with m.Elif(early.word.bit_select(early.place, 1)):
            m.d.comb += [self.stat_duplicate.eq(1), self._ahead.eq(self._mine)]
        with m.Else():
            m.d.sync += [verdict.accept.eq(1), verdict.hold.eq(1), self.holds.eq(1)]

    def _remember_ahead(self, m, select, ahead, judging):
        """What frame is judged; what is done when it is held, or was not."""
        early, mine, place = self._early, self._mine, Signal(range(self._window))
        m.d.comb += [
            early.place.eq(place),
            early.session.eq(encode(mine)),
            self.place.session.eq(early.session),
            self.place.number.eq(self.header.payload.seq),
        ]
        with m.If((self.open & mine).any()):  # it is of a session that was
            m.d.sync += self.holds.eq(0)
        with m.If(judging):
            m.d.sync += [mine.eq(select), place.eq(ahead - 1), self._far.eq(ahead >= self._window),
                         self.holds.eq(0)]
        with m.If(self.held):
            m.d.comb += self._ahead.eq(mine)
        with m.Elif(self.crowded):
            m.d.comb += [self.stat_gap.eq(1), self._gap.eq(mine)]

    def _acknowledge(self, m, sent, arrived):
        """Ask for an ACK where a frame stays unacknowledged for ``ack_delay`` cycles, or a NAK."""
        committed, refused = self.committed.payload.header, self.header.payload
        ack_due, nak_due = Signal(self._sessions), Signal(self._sessions)
        sack_due = Signal(self._sessions)    # stays zero without selective repeat
        early, coming = (0, 0) if self._early is None else (self._early.early, self._early.due)
        asked = Signal(self._sessions)       # an ACK was asked for and not sent yet
        row = Signal(6)  # of the frame that is booked or judged
        m.d.comb += row.eq(Mux(arrived.any(), self.committed.payload.row,
                               self.verdict.payload.row))
        clock, tick = Signal(16), Signal()
        m.d.sync += [clock.eq(Mux(clock == 0, self.nak_delay, clock - 1)),
                     tick.eq((clock == 1) & (self.nak_delay != 0))]
        now, then = Signal(16), Signal(16)
        m.d.sync += now.eq(now + 1)
        m.d.comb += then.eq(now + self.ack_delay)
        replies = []
        for n in range(self._sessions):
            pending, until = Signal(name=f"pending{n}"), Signal(16, name=f"until{n}")
            late, reply = Signal(name=f"late{n}"), Signal(Reply, name=f"reply{n}")
            newest, missing = self._newest[n], Signal(name=f"missing{n}")
            age = Signal(range(3), name=f"age{n}")  # of the newest NAK, in ticks
            m.d.comb += ack_due[n].eq(pending & late & ~asked[n])
            with m.If(now == until):
                m.d.sync += late.eq(1)
            with m.If(sent[n] | self.open[n]):
                m.d.sync += [pending.eq(0), asked[n].eq(0)]
            counts = arrived[n] & (takes_number(committed.type) | committed.ar)
            with m.If(counts | self._old[n]):
                m.d.sync += pending.eq(1)
                with m.If(self._old[n] | committed.ar):
                    m.d.sync += late.eq(1)
                with m.Elif(~pending | sent[n]):
                    m.d.sync += [until.eq(then), late.eq(self.ack_delay == 0)]
            # Behind a gap the numbers rise, until the sender has gone back.
            with m.If(arrived[n] & takes_number(committed.type) | self.open[n]):
                m.d.sync += [missing.eq(0), nak_due[n].eq(0)]
            with m.If(tick & (age != 2)):
                m.d.sync += age.eq(age + 1)
            with m.If(self._gap[n]):
                m.d.sync += [missing.eq(1), newest.eq(refused.seq)]
                with m.If(~missing | self._risen | (age == 2)):
                    m.d.sync += [nak_due[n].eq(1), age.eq(0)]
            source = Mux(counts, committed.as_value(), refused.as_value())
            with m.If(self._ahead[n]):
                m.d.sync += sack_due[n].eq(1)
            with m.If(self.open[n]):
                m.d.sync += sack_due[n].eq(0)
            with m.If(counts | self._old[n] | self._gap[n] | self._ahead[n]):
                header = FrameHeader(source)
                m.d.sync += [reply.session.eq(n), reply.row.eq(row),
                             reply.dst_slot.eq(header.src_slot),
                             reply.src_slot.eq(header.dst_slot),
                             reply.path.eq(header.way_back(self._paths))]
            replies.append(reply)

        reply, chosen = self.reply, Signal(range(self._sessions))
        limits = self._tell_limits(m)
        # While a frame comes again nobody can say yet that it is not missing.
        due = (ack_due | nak_due | sack_due) & ~coming
        with m.If(reply.valid):
            with m.If(reply.ready):
                m.d.sync += reply.valid.eq(0)
        with m.Elif(due.any()):
            pick = Signal.like(chosen)
            m.d.comb += pick.eq(round_robin(due, chosen))
            is_nak = nak_due.bit_select(pick, 1)
            words = (sack_due | early).bit_select(pick, 1) & ~is_nak
            m.d.sync += [
                chosen.eq(pick),
                asked.bit_select(pick, 1).eq(1),
                nak_due.bit_select(pick, 1).eq(0),
                reply.valid.eq(1),
                reply.payload.eq(Array(replies)[pick]),
                reply.payload.type.eq(Mux(is_nak | words, FrameType.SACK, FrameType.ACK)),
                reply.payload.words.eq(words),
            ]
            with m.If(~is_nak):
                m.d.sync += sack_due.bit_select(pick, 1).eq(0)
        with m.Elif(limits.valid):
            m.d.comb += limits.ready.eq(1)
            m.d.sync += [reply.valid.eq(1), reply.payload.eq(limits.payload)]

    def _tell_limits(self, m):
        """Stream of ACKs that tell limits of a row, no matter what came."""
        want, out = self.want, stream.Signature(Reply).create()
        reply, row, select = out.payload, Signal(PeerRow), Signal(self._sessions)
        path, failed = Signal.like(self.path[0]), Signal()
        m.d.comb += [
            reply.type.eq(FrameType.ACK), reply.row.eq(want.payload),
            reply.session.eq(encode(select)), reply.dst_slot.eq(row.slot),
            reply.src_slot.eq(row.local_slot),
        ]
        with m.FSM(name="limits"):
            with m.State("Idle"):
                m.d.sync += row.eq(Array(self.rows)[want.payload])
                with m.If(want.valid):
                    m.next = "Match"
            with m.State("Match"):
                m.d.sync += select.eq(self._match(row.node, row.stream))
                m.next = "Select"
            with m.State("Select"):
                m.d.sync += [path.eq(one_hot_mux(select, self.path)),
                             failed.eq((select & (self.failed | self.down)).any()
                                       | ~select.any())]
                m.next = "Offer"
            with m.State("Offer"):
                m.d.comb += out.valid.eq(~failed)
                with m.If(out.ready | failed):
                    m.d.comb += want.ready.eq(1)
                    m.next = "Idle"
        there = row.paths & (Const(~0, 16) << path)[:16]
        m.d.comb += reply.path.eq(first_one(Mux(there.any(), there, row.paths)))
        return out
