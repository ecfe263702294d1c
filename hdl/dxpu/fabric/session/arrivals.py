"""Whether a frame that came may take effect, and what follows from it when it does.

Ref: docs/reference/wire-format.md; docs/explanation/link.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import Counted
from dxpu.fabric.arq.early import EarlyMap
from dxpu.fabric.arq.resequencer import FramePlace
from dxpu.fabric.arq.retransmit import Acknowledged
from dxpu.fabric.receive.types import Committed, Verdict
from dxpu.fabric.wire.format import REACH
from dxpu.fabric.wire.frame_fields import any_of
from dxpu.fabric.wire.frame_types import SEQUENCED, SESSIONLESS, FrameType
from dxpu.fabric.wire.types import FrameHeader
from dxpu.priority import encode, first_one
from dxpu.rows import NO_ROW

from .replies import Cause, CauseKind
from .routes import find_session
from .types import Peer, PeerRow, Said, SaidKind

__all__ = ["Arrivals", "is_hello"]


def takes_number(frame_type):
    """Whether a frame of this type consumes a sequence number."""
    return Cat(frame_type == t for t in SEQUENCED).any()


def is_near(distance):
    """Whether a difference of two numbers, of 24 bits, is at least -:data:`REACH` and less than
    that."""
    high = distance[exact_log2(REACH):]
    return high.all() | ~high.any()


def is_hello(frame_type):
    """Whether a frame of this type is outside of any session."""
    return any_of(frame_type, SESSIONLESS)


class Arrivals(wiring.Component):
    """Judges frames by their headers, and books those that took effect.

    A verdict is given three cycles after its header, four if the frame came ahead of its turn. The
    verdict on a frame is given only when the ``committed`` report of every frame before it was
    taken. What follows from that is told to others afterwards; the next report waits for it.

    A frame of a session acts only if it is near: its SEQ is within
    :data:`~dxpu.fabric.wire.format.REACH` of the expected one, and its ACK names nothing that was
    not sent, nor what was acknowledged long ago. Whoever does not see the frames has to hit all
    three numbers. One that comes again from where it was held was examined before. A frame that
    confirms the candidate has numbers near 0.

    A refusal is counted and answered when the frame is done: a frame that was taken back comes
    again, and is judged anew.

    Parameters
    ----------
    rows, peers, streams, paths, frames, selective, window
        Of the :class:`~.link.Link`.

    Members
    -------
    node, peers, rows, hold, header, verdict, committed, receiving_next, receiving, rx_tag,
    candidate, greets, unacked, given_up, said, acked, fresh, words, request_number, again, held,
    crowded, holds, place, due, due_place, settled, stat_*
        Of the :class:`~.link.Link`.
    fetch, fetch_session, fetch_newest, fetched_number : 1, number of a session, 1, 24
        Of :class:`~.numbers.ReceivedNumbers`.
    put_next, put_newest, put_session, new_next, new_newest : 1, 1, number of a session, 24, 24
        Strobes: these are their new values.
    took, refused : stream of :class:`~.replies.Cause`
    frame_done, frame_taken_back
        Of the :class:`~.link.Link`.
    quiet : 1
        No report is being booked, and nothing is left to be told but to the keeper.
    opened, opened_session : 1, number of a session
        Strobe: it begins anew.
    look, looked, seen : 1 in, number of a session in, 1 out
        That session is looked up for somebody else: pulse, while it is ``receiving`` and
        ``fetched_number`` its newest ACK. No look-up begins while ``busy``.
    busy : 1
        The newest ACK of a session is written.
    route_word, routes : 64, number of a session
        The word of a SACK to that session; only if ``selective``.
    due_session, due_next : number of a session, 24
        The number of the frame that is expected in that session; only if ``selective``.
    """

    def __init__(self, *, rows, peers, streams, paths, frames, selective, window):
        self._rows, self._streams, self._paths = rows, streams, paths
        self._window = window
        sessions = peers * streams
        self._early = EarlyMap(sessions=sessions, window=window) if selective else None
        number, amount = range(sessions), range(frames + 1)
        super().__init__({
            "node": In(12),
            "peers": In(data.ArrayLayout(Peer, peers)),
            "rows": In(data.ArrayLayout(PeerRow, rows)),
            "hold": In(1),
            "header": In(stream.Signature(FrameHeader)),
            "verdict": Out(stream.Signature(Verdict)),
            "frame_done": In(1),
            "frame_taken_back": In(1),
            "committed": In(stream.Signature(Committed)),
            "receiving_next": Out(number),
            "receiving": Out(number),
            "rx_tag": In(16),
            "candidate": In(16),
            "greets": In(1),
            "unacked": In(amount),
            "given_up": In(1),
            "fetch": Out(1),
            "fetch_session": Out(number),
            "fetch_newest": Out(1),
            "fetched_number": In(24),
            "put_next": Out(1),
            "put_newest": Out(1),
            "put_session": Out(number),
            "new_next": Out(24),
            "new_newest": Out(24),
            "said": Out(stream.Signature(Said)),
            "acked": Out(stream.Signature(Acknowledged(frames))),
            "took": Out(stream.Signature(Cause)),
            "refused": Out(stream.Signature(Cause)),
            "fresh": Out(1),
            "words": In(1),
            "request_number": In(1),
            "quiet": Out(1),
            "opened": In(1),
            "opened_session": In(number),
            "look": In(1),
            "looked": In(number),
            "seen": Out(1),
            "busy": In(1),
            **({
                "again": In(1),
                "held": In(1),
                "crowded": In(1),
                "holds": Out(1),
                "place": Out(FramePlace(sessions, window)),
                "due": Out(1),
                "due_place": Out(FramePlace(sessions, window)),
                "settled": In(sessions),
                "early": Out(sessions),
                "coming": Out(sessions),
                "routes": In(number),
                "route_word": Out(window),
                "due_session": Out(number),
                "due_next": In(24),
            } if selective else {}),
            "stat_wrong_node": Out(Counted("Frames refused: for another node.")),
            "stat_no_session": Out(Counted(
                "Frames refused: no session with their source and stream.")),
            "stat_wrong_tag": Out(Counted("Frames refused: not of this session.")),
            "stat_duplicate": Out(Counted("Frames refused: they took effect before.")),
            "stat_gap": Out(Counted("Frames refused: frames before them are missing.")),
            "stat_nak": Out(Counted("NAKs, copies included: frames are to be sent again.")),
            "stat_stray": Out(Counted(
                "Frames refused: their SEQ or ACK is far from the numbers of the session.")),
        })
        number = Shape.cast(number)
        #: Session of the frame that takes effect, and of the one that is judged.
        self._taken, self._judged = Signal(number), Signal(number)
        #: Session of the frame whose report waits, else of the one whose header does, and whether
        #: there is one. While a report waits no frame begins to be judged.
        self._found, self._there = Signal(number), Signal()
        #: What is known of it is looked up, and is from the next cycle on.
        self._fetches_taken, self._fetches_judged = Signal(), Signal()
        self._looks_taken, self._looks_judged = Signal(), Signal()
        self._fetches_newest = Signal()  #: of the session that is judged
        self._busy = Signal()        #: a report is not booked yet
        self._far = Signal()         #: the frame that is judged is too far ahead to be held
        self._place = Signal(range(window))
        #: The header of the frame that was judged last.
        self._header = Signal(FrameHeader, reset_less=True)
        #: Strobes: the frame that was judged last is to be answered like this.
        self._refuses = {kind: Signal(name=f"refuses_{kind.name.lower()}") for kind in CauseKind}
        #: The same, and its counter, of a frame that is refused and not done.
        self._answers = {kind: Signal(name=f"answers_{kind.name.lower()}") for kind in CauseKind}
        self._counts = {name: Signal(name=f"counts_{name}") for name in (
            "wrong_node", "no_session", "wrong_tag", "duplicate", "gap", "stray")}

    def elaborate(self, platform):
        m = Module()
        if self._early is not None:
            self._attach_early(m)
        self._take_commits(m)
        self._judge_headers(m)
        self._answer_refusals(m)
        self._find(m)
        return m

    def _attach_early(self, m):
        """What came ahead: the words, and which of these frames is to come again."""
        m.submodules.early = early = self._early
        m.d.comb += [
            early.took.eq(Mux(self.put_next, 1 << self._taken, 0)),
            early.stores.eq(self.held),
            early.settled.eq(self.settled),
            early.forget.eq(Mux(self.opened, 1 << self.opened_session, 0)),
            early.route.eq(self.routes), self.route_word.eq(early.route_word),
            self.early.eq(early.early), self.coming.eq(early.due),
            self.due.eq(early.due.any()),
            self.due_session.eq(first_one(early.due)),
            self.due_place.session.eq(self.due_session),
            self.due_place.number.eq(self.due_next),
        ]

    def _find(self, m):
        """Find the session of a frame, and fetch what is known of that, or of one that somebody
        else looks up."""
        header = self.header.payload
        node, stream_number = Signal.like(header.src_node), Signal.like(header.stream)
        fetches, shows, shown = Signal(), Signal(), Signal.like(self.looked)
        session, known = find_session(self.peers, self._streams, node, stream_number)
        m.d.comb += [
            node.eq(header.src_node), stream_number.eq(header.stream),
            self._found.eq(session), self._there.eq(known),
            fetches.eq(self._fetches_taken | self._fetches_judged | self._fetches_newest),
            self.fetch.eq(fetches | self.look & ~self.busy),
            self.fetch_session.eq(Mux(self._fetches_newest, self._judged,
                                      Mux(fetches, self._found, self.looked))),
            self.fetch_newest.eq(~self._fetches_judged),
            self.receiving_next.eq(self.fetch_session),
            self.receiving.eq(Mux(self._looks_taken, self._taken,
                                  Mux(self._looks_judged, self._judged, self.looked))),
            self.seen.eq(self.look & shows & (shown == self.looked)),
        ]
        with m.If(self.committed.valid):
            came = self.committed.payload.header
            m.d.comb += [node.eq(came.src_node), stream_number.eq(came.stream)]
        m.d.sync += [shows.eq(self.look & ~self.busy & ~fetches), shown.eq(self.looked)]

    def _take_commits(self, m):
        """Book frames that took effect."""
        committed = self.committed
        header = committed.payload.header
        known, own, confirms, tagged = Signal(), Signal(), Signal(), Signal()
        unacked, fresh = Signal.like(self.unacked), Signal(24)
        numbered, greets, fits, is_nak, named, fences = (
            Signal(name=n) for n in ("is_numbered", "is_hello", "fits", "is_nak", "is_named",
                                     "is_fence"))
        said, acked, took = self.said, self.acked, self.took
        books, changes = Signal(), Signal()
        tells = Cat(s.valid & ~s.ready for s in (said, acked, took)).any()
        m.d.comb += [
            numbered.eq(takes_number(header.type)),
            greets.eq(is_hello(header.type)),
            is_nak.eq(header.type == FrameType.SACK),
            named.eq(is_nak & self.words & (self._early is not None)),
            fences.eq(header.type == FrameType.FENCE),
            tagged.eq(known & ~greets),
            # An old acknowledgement has no effect.
            fits.eq(own & ~fences & (fresh <= unacked)),
            self.put_session.eq(self._taken),
            self.new_next.eq(header.seq + 1),
            self.new_newest.eq(header.ack),
        ]
        for source in (said, acked, took):
            with m.If(source.valid & source.ready):
                m.d.sync += source.valid.eq(0)
        with m.FSM(name="commit") as fsm:
            with m.State("Idle"):
                m.d.sync += [self._taken.eq(self._found), known.eq(self._there)]
                with m.If(committed.valid & ~self.hold & ~self._fetches_newest):
                    m.d.comb += self._fetches_taken.eq(1)
                    m.next = "Look"
            with m.State("Look"):
                m.d.comb += self._looks_taken.eq(1)
                m.d.sync += [
                    fresh.eq(header.ack - self.fetched_number), unacked.eq(self.unacked),
                    own.eq(tagged & (self.rx_tag == header.tag)),
                    confirms.eq(tagged & ~fences & (self.rx_tag != header.tag)
                                & (self.candidate == header.tag)),
                ]
                m.next = "Book"
            with m.State("Book"):
                m.d.comb += books.eq(1)
                back = fits & is_nak & (fresh != unacked) & ~named
                m.d.comb += [
                    self.put_next.eq(own & numbered), self.put_newest.eq(fits),
                    self.stat_nak.eq(back),
                ]
                m.d.sync += [
                    said.valid.eq(known & greets | own | confirms),
                    said.payload.kind.eq(Mux(greets, SaidKind.GREETED, Mux(
                        own, Mux(fences, SaidKind.FENCED, SaidKind.HEARD), SaidKind.CONFIRMED))),
                    said.payload.session.eq(self._taken),
                    acked.valid.eq(fits & (back | named | (fresh != 0))),
                    acked.payload.session.eq(self._taken), acked.payload.count.eq(fresh),
                    acked.payload.back.eq(back), acked.payload.request.eq(self.request_number),
                    acked.payload.named.eq(named),
                    took.valid.eq(own & ~fences & (numbered | header.ar)),
                    took.payload.kind.eq(CauseKind.TOOK),
                    took.payload.session.eq(self._taken), took.payload.urgent.eq(header.ar),
                    took.payload.numbered.eq(numbered),
                    took.payload.row.eq(committed.payload.row),
                    took.payload.dst_slot.eq(header.src_slot),
                    took.payload.src_slot.eq(header.dst_slot),
                    took.payload.path.eq(header.way_back(self._paths)),
                ]
                m.d.sync += changes.eq(confirms | own & fences)
                m.next = "Tell"
                with m.If(greets | named):
                    m.next = "Hold"
                with m.Else():
                    m.d.comb += [committed.ready.eq(1), self.fresh.eq(fits)]
            with m.State("Tell"):
                with m.If(~tells):
                    m.next = "Idle"
            with m.State("Hold"):  # others look at the frame
                with m.If(~tells):
                    m.d.comb += [committed.ready.eq(1), self.fresh.eq(fits)]
                    m.next = "Idle"
        m.d.comb += [
            self.quiet.eq(~self._looks_taken & ~books & ~acked.valid & ~took.valid),
            # A frame that confirms the candidate opens the session for the next one; one that ends
            # a session ends it for the next.
            self._busy.eq(committed.valid | ~fsm.ongoing("Idle")
                          & ~(fsm.ongoing("Tell") & ~changes)),
        ]

    def _judge_headers(self, m):
        header = self.header.payload
        verdict = self.verdict.payload
        here, known = Signal(), Signal()
        rows, used = Signal(self._rows), Cat(r.used for r in self.rows)
        # A released row may still name the peer of another that is in use.
        one = Signal(self._rows)
        m.d.comb += one.eq(Mux((rows & used).any(), rows & used, rows))
        tag, candidate = Signal(16), Signal(16)
        numbered, ahead, hello, fits = Signal(), Signal(24), Signal(), Signal()
        copy = Signal()  # the frame that is expected is held, and this is another one of it
        row, accept, hold = Signal.like(verdict.row), Signal(), Signal()
        own, unacked = Signal(), Signal.like(self.unacked)
        # Its numbers matter; SEQ is far; ACK is that much newer than the newest one; it may be old.
        numbers, far, newer, old = Signal(), Signal(), Signal(24), Signal()
        stray = numbers & (far | Mux(newer[-1], ~old | ~is_near(newer), newer > unacked))
        fence = header.type == FrameType.FENCE
        m.d.comb += [
            own.eq((tag != 0) & (tag == header.tag)),
            fits.eq(Mux(is_hello(header.type), hello, own | ~numbered & (candidate != 0)
                        & (candidate == header.tag) & ~fence)),
            numbered.eq(takes_number(header.type)),
        ]
        valid = here & known & fits
        gap = valid & numbered & ~ahead[-1] & (ahead != 0)
        with m.FSM(name="verdict"):
            with m.State("Idle"):
                m.d.sync += [
                    here.eq(header.dst_node == self.node),
                    self._judged.eq(self._found), known.eq(self._there),
                    rows.eq(Cat((r.node == header.src_node) & (r.slot == header.src_slot)
                                & (r.local_slot == header.dst_slot) & (r.stream == header.stream)
                                for r in self.rows)),
                ]
                with m.If(self.header.valid & ~self._busy & ~self.hold & ~self.refused.valid):
                    m.d.comb += self._fetches_judged.eq(1)
                    m.next = "Select"
            with m.State("Select"):
                m.d.comb += [self._looks_judged.eq(1), self._fetches_newest.eq(1)]
                m.d.sync += [
                    unacked.eq(self.unacked),
                    tag.eq(Mux(self.given_up, 0, self.rx_tag)), candidate.eq(self.candidate),
                    hello.eq(self.greets), ahead.eq(header.seq - self.fetched_number),
                    row.eq(Mux(rows.any(), encode(one & -one), NO_ROW)), hold.eq(0),
                    *(flag.eq(0) for flag in (*self._answers.values(), *self._counts.values())),
                ]
                if self._early is not None:
                    m.d.sync += copy.eq(self._early.due.bit_select(self._judged, 1) & ~self.again)
                m.next = "Judge"
            with m.State("Judge"):
                m.d.sync += [
                    self._header.eq(header), old.eq(own),
                    numbers.eq(valid & ~is_hello(header.type)),
                    far.eq(~is_near(Mux(own, ahead, header.seq))),
                    newer.eq(header.ack - Mux(own, self.fetched_number, 0)),
                ]
                with m.If(~own):
                    m.d.sync += unacked.eq(0)
                if self._early is not None:
                    with m.If(self.again):
                        m.d.sync += numbers.eq(0)
                with m.If(~here):
                    self._refuse(m, "wrong_node")
                with m.Elif(~known):
                    self._refuse(m, "no_session")
                with m.Elif(~fits):
                    self._refuse(m, "wrong_tag")
                with m.Elif(numbered & (ahead[-1] | copy & (ahead == 0))):
                    self._refuse(m, "duplicate", CauseKind.OLD)
                m.next = "Answer"
                if self._early is None:
                    with m.If(gap):
                        self._refuse(m, "gap", CauseKind.GAP)
                else:
                    m.d.sync += [self._place.eq(ahead - 1), self._far.eq(ahead >= self._window),
                                 self.holds.eq(0)]
                    with m.If(gap):
                        m.next = "Ahead"
                m.d.sync += accept.eq(valid & ~(numbered & ((ahead != 0) | copy)))
            if self._early is not None:
                with m.State("Ahead"):
                    with m.If(~stray):
                        self._judge_ahead(m, accept, hold)
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.verdict.valid.eq(1)
                with m.If(stray):
                    m.d.sync += [
                        *(flag.eq(0) for flag in (*self._answers.values(),
                                                  *self._counts.values())),
                        self._counts["stray"].eq(1),
                    ]
                with m.If(self.verdict.ready):
                    m.d.comb += self.header.ready.eq(1)
                    with m.If(Cat(self._counts.values()).any() | stray):
                        m.next = "Refused"
                    with m.Else():
                        m.next = "Idle"
            with m.State("Refused"):
                with m.If(self.frame_done):
                    with m.If(~self.frame_taken_back):
                        m.d.comb += [
                            *(getattr(self, f"stat_{name}").eq(flag)
                              for name, flag in self._counts.items()),
                            *(self._refuses[kind].eq(flag)
                              for kind, flag in self._answers.items()),
                        ]
                    m.next = "Idle"
        m.d.comb += [verdict.accept.eq(accept & ~stray), verdict.hold.eq(hold),
                     verdict.row.eq(row)]
        if self._early is not None:
            self._hold_ahead(m)

    def _judge_ahead(self, m, accept, hold):
        """Decide about a frame that came ahead."""
        early = self._early
        with m.If(self._far):
            # No NAK: the peer would repeat all that is on its way.
            self._refuse(m, "gap", CauseKind.AHEAD)
        with m.Elif(early.word.bit_select(early.place, 1)):
            self._refuse(m, "duplicate", CauseKind.AHEAD)
        with m.Else():
            m.d.sync += [accept.eq(1), hold.eq(1), self.holds.eq(1)]

    def _hold_ahead(self, m):
        """Where a frame that came ahead is held; what is done when it is, or was not."""
        early = self._early
        m.d.comb += [
            early.place.eq(self._place),
            early.session.eq(self._judged),
            self.place.session.eq(early.session),
            self.place.number.eq(self._header.seq),
        ]
        with m.If(self.opened & (self.opened_session == self._judged)):
            m.d.sync += self.holds.eq(0)  # it is of a session that was
        with m.If(self.held):
            m.d.comb += self._refuses[CauseKind.AHEAD].eq(1)
        with m.Elif(self.crowded):
            m.d.comb += [self.stat_gap.eq(1), self._refuses[CauseKind.GAP].eq(1)]

    def _refuse(self, m, counter, answer=None):
        """Note that the frame that is judged is refused: what counts it, and how it is answered."""
        m.d.sync += self._counts[counter].eq(1)
        if answer is not None:
            m.d.sync += self._answers[answer].eq(1)

    def _answer_refusals(self, m):
        """Have a frame answered that does not take effect, or not yet."""
        refused, header = self.refused, self._header
        p = refused.payload
        with m.If(refused.valid & refused.ready):
            m.d.sync += refused.valid.eq(0)
        for kind, strobe in self._refuses.items():
            with m.If(strobe):
                m.d.sync += [
                    refused.valid.eq(1), p.kind.eq(kind), p.session.eq(self._judged),
                    p.seq.eq(header.seq), p.row.eq(self.verdict.payload.row),
                    p.dst_slot.eq(header.src_slot), p.src_slot.eq(header.dst_slot),
                    p.path.eq(header.way_back(self._paths)),
                ]
