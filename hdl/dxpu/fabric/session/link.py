"""Sessions of a proxy: who the peers are, which tags they gave, which frame is next.

Ref: docs/reference/wire-format.md; docs/explanation/link.md

A frame takes effect only if all before it did. One that comes ahead of its turn is refused, and
asked for with all behind it (go-back-N), or held for later (selective repeat). What is sent again,
and when, is the :class:`~dxpu.fabric.arq.retransmit.Retransmitter`'s.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.arq.early import WINDOW
from dxpu.fabric.arq.retransmit import About
from dxpu.fabric.contexts import MOST, Fetched, Words
from dxpu.rows import NO_ROW
from dxpu.stream import connect

from .arrivals import Arrivals
from .numbers import ReceivedNumbers
from .replies import Replies
from .routes import Routes
from .types import LinkState

__all__ = ["Link"]


class Link(wiring.Component):
    """Answers what a frame to be sent must carry, and whether a received frame may take effect.

    A route is answered four cycles after its request, a verdict three cycles after its header.
    Frames are numbered in the order of the requests. There is no route for TLPs of a row that is
    not bound any more, or of an earlier life of it, so what was queued then never leaves, and none
    for a session that has failed. The verdict on a frame is given only when the ``committed``
    report of every frame before it was taken.

    When frames are acknowledged that nothing else acknowledges, and when a NAK (SACK without words)
    is sent, say :class:`~.replies.Replies`. While a session opens or ends everything waits.

    With ``selective``, good frames up to ``window - 1`` ahead are to be held; there is a NAK only
    for those that find no room. For each other one that comes ahead of its turn a SACK with a word
    is sent, as is every other ACK frame while any is held. The one that is due is taken
    only from where it is held. Frames with a number take the paths that they may in turn, but for
    those to avoid, and probes the session's path; a route takes a cycle more.

    HELLO and HELLO_ACK of a known peer are taken if its session wants them, and acknowledge
    nothing; a frame without a number that has the session's ``candidate`` for a tag is taken too,
    and does nothing but confirm the candidate.

    The numbers that frames to be sent need are where ``block`` says, those of frames that come in a
    block RAM.

    Parameters
    ----------
    rows : int
        Rows of the mapping table, 1 to 63.
    peers, streams : int
        Sessions: one for each stream of each peer, 64 at most; the latter a power of two up to 16.
        The session of a stream has the number ``peer * streams + stream``.
    paths : int
        Ethernet ports.
    frames : int
        Frames that can be unacknowledged.
    selective, window : bool, int
        Selective repeat; with so many frames from the expected one on.
    block : bool
        State of the sessions is in block RAM (:class:`~dxpu.fabric.contexts.Owned`).

    Members
    -------
    node : 12
        Our node number.
    links : ``paths``
        Bit n: path n has a link. Frames leave by the others only if they may take no path that has
        one.
    ack_delay
        Of :class:`~.replies.Replies`.
    peers : array of :class:`Peer`
    rows : array of :class:`PeerRow`
    bound : ``rows``
        Bit n: TLPs of row n may leave.
    lives : array of numbers
        Number of the current life of each row.
    open, first_seq, first_next : stream of numbers of sessions, 24, 24
        The session begins anew: these are the numbers of its first frame that is sent, and of the
        first one that comes. What was asked for before gets no number any more.
    last_seq, last_next : 24
        While ``open`` is taken: what these numbers would have been without. ``hold`` must stay for
        a cycle more.
    hold : 1
        No session is looked up: one of them is being opened, here or elsewhere.
    sending, tx_tag, down, about : number of a session out, 16 in, 1 in, :class:`About` in
        What is known of that session, in the same cycle: of the
        :class:`~dxpu.fabric.session.session.SessionKeeper` and the
        :class:`~dxpu.fabric.arq.retransmit.Retransmitter`.
    receiving, rx_tag, candidate, greets, unacked, given_up
        The same, for frames that come.
    sending_next, receiving_next : number of a session
        ``sending`` of the next cycle; ``receiving`` of the next cycle, if that is one in which a
        session is looked up.
    told, told_session, told_lost : 1, number of a session, 1
        Of the keeper: a session opens or is lost.
    said : stream of :class:`Said`
        For the keeper. A greeting stays in ``committed`` until this is taken.
    acked : stream of :class:`Acknowledged`
        For the retransmitter. A SACK with a word stays in ``committed`` until this is taken.
    look, looked, seen, state, shown, shown_unacked : 1 in, number of a session in, 1 out, ...
        As long as ``look`` is high it is answered, each time by a pulse of ``seen``, with the
        :class:`LinkState` of that session, and ``about`` and ``unacked`` of it.
    request, route : stream of :class:`RouteRequest` in, :class:`FrameRoute` out
    header, verdict : stream of :class:`FrameHeader` in, :class:`Verdict` out
    frame_done, frame_taken_back : 1
        Of the :class:`~dxpu.fabric.receive.depacketizer.Depacketizer`, as ``judged`` and
        ``taken_back``: the frame of the last ``header`` is done with; the verdict on it counts for
        nothing, as it was taken back, and comes again, or its header was not sound.
    committed : stream of :class:`Committed`
    reply, stale : stream of :class:`Reply`, 1
        ACK and SACK frames that nothing else carries; of :class:`~.replies.Replies`.
    fresh : 1
        With ``committed`` taken: its acknowledgement is not older than the newest one.
    numbered, numbered_strobe : :class:`~dxpu.fabric.credit.credits.Numbered`, 1
        An event that begins a life of a row has got its number.
    generations : array of 8-bit values
        Low bits of the generation of each row.
    granting : ``rows``
        Limits of row n are told.
    limit_row, limits, owed, told_limits, told_row, told_mask, want
        Of the :class:`~dxpu.fabric.credit.grants.CreditGrants`, as ``row``, ``due``, ``told`` and
        so on.
    withheld : array of :class:`~dxpu.fabric.wire.types.Limit`
        By how much less the ``limits`` are told (:class:`~dxpu.fabric.credit.shares.GrantShares`).
    words, request_number : 1, 1
        The SACK in ``committed`` has a word; if not, the number of its request to go back.
    again, held, crowded, holds, place, due, due_place, settled
        Only if ``selective``. Of the :class:`~dxpu.fabric.arq.resequencer.Resequencer` and the
        :class:`~dxpu.fabric.receive.depacketizer.Depacketizer`: the frame that ``header`` belongs
        to comes again; it was held; it was not for want of room; it may be, as far as the link
        knows, and where; a frame is to come again, and which; it does not.
    short : 1
        New frames are to be acknowledged at once.
    lost : ``rows``
        The session of row n has failed or is down. Also for some cycles after row n has got
        another peer.
    stat_wrong_node, stat_no_session, stat_wrong_tag, stat_duplicate, stat_stray : 1
        Pulses: a frame was refused, and why.
    stat_gap : 1
        Pulse: a frame was refused because frames before it are missing.
    stat_nak : 1
        Pulse: a NAK came, or a copy of one, for frames that are not acknowledged.
    """

    def __init__(self, *, rows, peers=16, streams=4, paths=2, frames=64, selective=False,
                 window=WINDOW, block=True):
        if rows not in range(1, NO_ROW + 1):
            raise ValueError(f"rows must be 1 to {NO_ROW}, not {rows!r}")
        if streams not in (1, 2, 4, 8, 16):
            raise ValueError(f"streams must be 1, 2, 4, 8 or 16, not {streams!r}")
        if peers not in range(1, MOST // streams + 1):
            raise ValueError(f"peers must be 1 to {MOST // streams} with {streams} streams of "
                             f"each, not {peers!r}")
        self._sessions, self._selective = peers * streams, selective
        shape = dict(rows=rows, peers=peers, streams=streams, paths=paths, selective=selective)
        self._routes = self.ROUTES(**shape)
        self._arrivals = self.ARRIVALS(**shape, frames=frames, window=window)
        self._replies = self.REPLIES(sessions=self._sessions, paths=paths, block=block)
        number = range(self._sessions)
        super().__init__({
            **{name: member for part in self._parts for name, member in self._shared(part)},
            "open": In(stream.Signature(number)),
            "first_seq": In(24),
            "first_next": In(24),
            "last_seq": Out(24),
            "last_next": Out(24),
            "hold": In(1),
            "look": In(1),
            "looked": In(number),
            "seen": Out(1),
            "state": Out(LinkState),
            "shown": Out(About(paths)),
            "shown_unacked": Out(range(frames + 1)),
        })
        #: Of each session: the next number to send, the next one expected; the latter again, and
        #: the newest ACK.
        self._seq = Fetched(24, depth=self._sessions, block=block)
        self._next = Fetched(24, depth=self._sessions, block=block)
        # That of the frame that is to come again is looked up, too.
        self._due = Words(24, depth=self._sessions) if selective else None
        self._numbers = ReceivedNumbers(sessions=self._sessions)
        self._opened = Signal()

    #: What it consists of.
    ROUTES, ARRIVALS, REPLIES = Routes, Arrivals, Replies

    #: Members of these that are between them, and no members of the link, or its own.
    _INSIDE = frozenset({
        "all_told", "booked", "busy", "changed", "coming", "due_next", "due_session", "early",
        "fetch", "fetch_newest", "fetch_session", "fetched_number", "hold", "look", "looked",
        "new_newest", "new_next", "next", "open", "opened", "opened_session", "others", "put",
        "put_newest", "put_next", "put_seq", "put_session", "quiet", "refused", "route_word",
        "routes", "say", "seen", "sent", "sent_row", "sent_session", "seq", "took", "whole", "word",
    })

    @property
    def _parts(self):
        return self._routes, self._arrivals, self._replies

    def _shared(self, part):
        """Members of a part that are members of the link, too."""
        return [(name, member) for name, member in part.signature.members.items()
                if name not in self._INSIDE]

    def elaborate(self, platform):
        m = Module()
        routes, arrivals, replies = self._parts
        m.submodules.routes, m.submodules.arrivals = routes, arrivals
        m.submodules.replies = replies
        m.submodules.seq, m.submodules.next = self._seq, self._next
        m.submodules.numbers = numbers = self._numbers
        for part in self._parts:
            for name, member in self._shared(part):
                self._attach(m, getattr(self, name), getattr(part, name), member)
        hold, sending = Signal(), Signal.like(routes.sending_next)
        m.d.comb += [
            hold.eq(self.hold | ~self._seq.ready),
            routes.hold.eq(hold), arrivals.hold.eq(hold | numbers.busy),
            sending.eq(Mux(self.open.valid, self.open.payload, routes.sending_next)),
            self._seq.at.eq(sending), routes.seq.eq(self._seq.word),
            self._next.at.eq(sending), routes.next.eq(self._next.word),
            self.last_seq.eq(self._seq.word), self.last_next.eq(self._next.word),
            numbers.fetch.eq(arrivals.fetch), numbers.fetch_session.eq(arrivals.fetch_session),
            numbers.fetch_newest.eq(arrivals.fetch_newest),
            arrivals.fetched_number.eq(numbers.fetched_number),
            arrivals.busy.eq(numbers.busy | numbers.writes_newest),
            numbers.put_expected.eq(arrivals.put_next),
            numbers.put_newest.eq(arrivals.put_newest),
            numbers.put_session.eq(arrivals.put_session),
            numbers.expected.eq(arrivals.new_next), numbers.newest.eq(arrivals.new_newest),
            numbers.clear.eq(self._opened), numbers.clear_session.eq(self.open.payload),
            numbers.first_expected.eq(self.first_next), numbers.first_newest.eq(self.first_seq),
            replies.sent.eq(routes.sent), replies.sent_session.eq(routes.sent_session),
            replies.sent_row.eq(routes.sent_row), replies.whole.eq(routes.whole),
            replies.all_told.eq(routes.all_told),
            routes.booked.eq(arrivals.put_next),
            routes.changed.eq(Mux(self._opened, self.open.payload, arrivals.put_session)),
            routes.opened.eq(self._opened),
            arrivals.opened.eq(self._opened), arrivals.opened_session.eq(self.open.payload),
        ]
        connect(m, arrivals.took, replies.took)
        connect(m, arrivals.refused, replies.refused)
        connect(m, routes.say, replies.others)
        if self._selective:
            m.submodules.due = self._due
            m.d.comb += [
                arrivals.routes.eq(routes.sending), routes.word.eq(arrivals.route_word),
                replies.early.eq(arrivals.early), replies.coming.eq(arrivals.coming),
                self._due.at[0].eq(arrivals.due_session),
                arrivals.due_next.eq(self._due.word[0]),
            ]
        self._open_sessions(m)
        self._show(m)
        return m

    @staticmethod
    def _attach(m, ours, theirs, member):
        """Connect a member of the link to that of a part."""
        if member.is_port:
            m.d.comb += theirs.eq(ours) if member.flow is In else ours.eq(theirs)
        elif member.flow is In:
            connect(m, wiring.flipped(ours), theirs)
        else:
            connect(m, theirs, wiring.flipped(ours))

    def _open_sessions(self, m):
        """The session has its new numbers when nobody works with the old ones, and nothing is to be
        said of them."""
        routes, arrivals, replies, silent = self._routes, self._arrivals, self._replies, Signal()
        m.d.comb += [
            replies.open.valid.eq(self.open.valid & arrivals.quiet & ~silent),
            replies.open.payload.eq(self.open.payload),
            self.open.ready.eq(arrivals.quiet & silent & ~routes.put
                               & ~self._numbers.writes_newest),
            self._opened.eq(self.open.valid & self.open.ready),
        ]
        with m.If(self._opened):
            m.d.sync += silent.eq(0)
        with m.Elif(replies.open.valid & replies.open.ready):
            m.d.sync += silent.eq(1)
        for words, put, session, new, first in (
                (self._seq, routes.put, routes.put_session, routes.put_seq, self.first_seq),
                *((words, arrivals.put_next, arrivals.put_session, arrivals.new_next,
                   self.first_next)
                  for words in (self._next, self._due) if words is not None)):
            m.d.comb += [
                words.put.eq(put | self._opened),
                words.where.eq(Mux(self._opened, self.open.payload, session)),
                words.new.eq(Mux(self._opened, first, new)),
            ]

    def _show(self, m):
        """What a session is like, for software: what is sent, then what is received."""
        routes, arrivals, half = self._routes, self._arrivals, Signal()
        other = Signal()  # the words are those of a session that begins anew
        m.d.sync += other.eq(self.open.valid)
        m.d.comb += [
            routes.look.eq(self.look & ~half), routes.looked.eq(self.looked),
            arrivals.look.eq(half), arrivals.looked.eq(self.looked),
            self.seen.eq(half & arrivals.seen),
            self.state.acked.eq(self._numbers.fetched_number),
            self.shown_unacked.eq(self.unacked),
        ]
        with m.If(self.look & routes.seen & ~other):
            m.d.sync += [half.eq(1), self.state.seq.eq(self._seq.word),
                         self.state.next.eq(self._next.word), self.shown.eq(self.about)]
        with m.If(self.seen | ~self.look):
            m.d.sync += half.eq(0)
