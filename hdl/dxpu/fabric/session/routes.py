"""What a frame to be sent must carry: addresses, path, tag, numbers, limits.

Ref: docs/reference/wire-format.md; docs/explanation/link.md
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.fabric.arq.retransmit import About
from dxpu.fabric.credit.credits import Numbered, closed_generation
from dxpu.fabric.send.types import FrameRoute, Reply, RouteRequest
from dxpu.fabric.wire.format import ACK_ENTRIES
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import Limit
from dxpu.priority import encode, first_one, lowest_bit, one_hot_mux
from dxpu.rows import LIFE_BITS

from .types import Peer, PeerRow

__all__ = ["Routes", "find_session"]


def find_session(peers, streams, node, stream):
    """Number of the session with ``stream`` of the peer ``node``, and whether there is one."""
    peer, bits = Cat(p.valid & (p.node == node) for p in peers), exact_log2(streams)
    return Cat(stream[:bits], encode(peer)), peer.any() & (stream[bits:] == 0)


class Asker(enum.Enum, shape=2):
    """Who looks a session up, if no route does."""

    NOBODY = 0
    LIMITS = 1
    ROWS = 2
    SOFTWARE = 3


class Routes(wiring.Component):
    """Answers what a frame to be sent must carry; numbers frames in the order of the requests.

    A route is answered four cycles after its request, or five if ``selective``. Sessions are looked
    up in a pipeline: the row, its session, what is known of that; when no route needs it, it finds
    out which rows are lost, and where limits go.

    Parameters
    ----------
    rows, peers, streams, paths, selective
        Of the :class:`~.link.Link`.

    Members
    -------
    node, links, peers, rows, bound, lives, hold, request, route, sending_next, sending, tx_tag,
    down, about, told, told_session, told_lost, numbered, numbered_strobe, generations, granting,
    limit_row, limits, withheld, owed, told_limits, told_row, told_mask, want, short, lost
        Of the :class:`~.link.Link`.
    seq, next : 24
        Of the session ``sending``: the number of the next frame to send, and what is acknowledged.
    word : 64
        The word of a SACK of it; only if ``selective``.
    put, put_session, put_seq : 1, number of a session, 24
        Strobe: that is the number of the next frame from now on.
    booked, opened, changed : 1, 1, number of a session
        Strobes: a frame with a number of that session takes effect; it begins anew.
    sent, sent_session, sent_row, whole, all_told
        Of :class:`~.replies.Replies`.
    say : stream of :class:`~dxpu.fabric.send.types.Reply`
        ACKs that tell limits.
    look, looked, seen : 1 in, number of a session in, 1 out
        That session is looked up for somebody else: pulse, while it is ``sending``.
    """

    def __init__(self, *, rows, peers, streams, paths, selective):
        self._rows, self._peers, self._streams = rows, peers, streams
        self._paths, self._selective = paths, selective
        number = range(peers * streams)
        super().__init__({
            "node": In(12),
            "links": In(paths, init=(1 << paths) - 1),
            "peers": In(data.ArrayLayout(Peer, peers)),
            "rows": In(data.ArrayLayout(PeerRow, rows)),
            "bound": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "hold": In(1),
            "request": In(stream.Signature(RouteRequest)),
            "route": Out(stream.Signature(FrameRoute)),
            "sending_next": Out(number),
            "sending": Out(number),
            "tx_tag": In(16),
            "down": In(1),
            "about": In(About(paths)),
            "seq": In(24),
            "next": In(24),
            **({"word": In(64)} if selective else {}),
            "put": Out(1),
            "put_session": Out(number),
            "put_seq": Out(24),
            "booked": In(1),
            "opened": In(1),
            "changed": In(number),
            "sent": Out(1),
            "sent_session": Out(number),
            "sent_row": Out(6),
            "whole": Out(1),
            "all_told": Out(1),
            "told": In(1),
            "told_session": In(number),
            "told_lost": In(1),
            "numbered": Out(Numbered),
            "numbered_strobe": Out(1),
            "generations": In(data.ArrayLayout(8, rows)),
            "granting": In(rows),
            "limit_row": Out(6),
            "limits": In(data.ArrayLayout(Limit, ACK_ENTRIES)),
            "withheld": In(data.ArrayLayout(Limit, ACK_ENTRIES)),
            "owed": In(ACK_ENTRIES),
            "told_limits": Out(1),
            "told_row": Out(6),
            "told_mask": Out(ACK_ENTRIES),
            "want": In(stream.Signature(6)),
            "say": Out(stream.Signature(Reply)),
            "short": In(1),
            "look": In(1),
            "looked": In(number),
            "seen": Out(1),
            "lost": Out(rows),
        })
        number = Shape.cast(number)
        #: States of the route: it looks for its row, for the session, for what is known of that.
        self._idle, self._matches, self._selects = Signal(), Signal(), Signal()
        #: What others look for; who of them is let in; who has the session that is `sending`.
        self._wants = {who: Signal(name=f"{who.name.lower()}_want") for who in Asker}
        self._wanted = {who: Signal(6, name=f"{who.name.lower()}_row") for who in Asker}
        self._granted, self._asker = Signal(Asker), Signal(Asker)
        #: The session that is `sending`; whether it exists; its row, if one was asked for.
        self._session, self._known = Signal(number), Signal()
        self._row, self._row_number = Signal(PeerRow), Signal(6)

    def elaborate(self, platform):
        m = Module()
        self._look_up(m)
        self._answer(m)
        self._tell_limits(m)
        self._watch_rows(m)
        m.d.comb += [
            self._wants[Asker.SOFTWARE].eq(self.look),
            # Software may have looked at another one since it was let in.
            self.seen.eq((self._asker == Asker.SOFTWARE) & ~self._selects
                         & (self._session == self.looked)),
        ]
        return m

    def _look_up(self, m):
        """The pipeline."""
        asked = self.request.payload
        row, who, number = Signal(PeerRow), Signal(Asker), Signal(6)
        place, there, direct = Signal(6), Signal(), Signal()
        named = Signal.like(self._session)
        moves = ~(self._selects & self.hold)
        session, known = find_session(self.peers, self._streams, row.node, row.stream)
        chosen = Array(self.rows)[place]
        software = who == Asker.SOFTWARE
        m.d.comb += [
            place.eq(asked.row), there.eq(known), direct.eq(self._matches & asked.direct),
            # The session of the row comes late, so it goes through one choice only.
            named.eq(Mux(~moves, self._session, Mux(software, self.looked, asked.session))),
            self.sending_next.eq(Mux(~moves | software | direct, named, session)),
            self.sending.eq(self._session),
        ]
        with m.If(moves & ~(self._idle & self.request.valid)):
            for one in (Asker.ROWS, Asker.LIMITS, Asker.SOFTWARE):
                with m.If(self._wants[one]):
                    m.d.comb += [self._granted.eq(one), place.eq(self._wanted[one])]
        with m.If(direct):
            m.d.comb += there.eq(self._peer(asked.session).valid)
        m.d.sync += self._session.eq(self.sending_next)
        with m.If(moves):
            m.d.sync += [
                row.eq(chosen), row.paths.eq(chosen.paths[:self._paths]),
                who.eq(self._granted), number.eq(place),
                self._known.eq(there), self._asker.eq(who),
                self._row.eq(row), self._row_number.eq(number),
            ]

    def _peer(self, session):
        """The peer of a session."""
        return self.peers[session[exact_log2(self._streams):]]

    def _linked(self, paths):
        """Those of ``paths`` that have a link; if none has, all."""
        return Mux((paths & self.links).any(), paths & self.links, paths)

    def _answer(self, m):
        request, route = self.request, self.route.payload
        asked = request.payload
        row, session, about = Signal(PeerRow), Signal.like(self._session), Signal.like(self.about)
        seq, acks, tag, there = Signal(24), Signal(24), Signal(16), Signal()
        node = Signal(12)
        path, turn = Signal.like(self.about.path), Signal.like(self.about.path)
        ways = Signal(16)               # paths that the frame takes
        linked = Signal(16)             # those of its paths that have a link
        granting, generation = Signal(), Signal(8)
        limits, due = Signal.like(self.limits), Signal.like(self.owed)
        withheld = Signal.like(self.withheld)
        life, bound, alive = Signal(LIFE_BITS), Signal(), Signal()
        # Since the session was looked up: it has begun anew; more has taken effect.
        anew, more = Signal(), Signal()
        mine = self.changed == session
        m.d.sync += [anew.eq(anew | self.opened & mine), more.eq(more | self.booked & mine),
                     self.put.eq(0), self.numbered_strobe.eq(0)]
        grants = (self.granting.bit_select(asked.row, 1) & ~asked.again
                  & (asked.row < self._rows))
        selected = self._selects & ~self.hold
        with m.FSM(name="route") as fsm:
            with m.State("Idle"):
                m.d.sync += [
                    life.eq(Array(self.lives)[asked.row]),
                    bound.eq(self.bound.bit_select(asked.row, 1)),
                ]
                with m.If(request.valid):
                    m.next = "Match"
            with m.State("Match"):
                m.d.sync += alive.eq(~asked.tlps | bound & (life == asked.life))
                m.next = "Select"
            with m.State("Select"):
                m.d.sync += [
                    row.eq(self._row), session.eq(self._session), there.eq(self._known),
                    node.eq(self._peer(self._session).node),
                    tag.eq(self.tx_tag), seq.eq(self.seq), acks.eq(self.next),
                    about.eq(self.about), path.eq(self.about.path),
                    anew.eq(0), more.eq(self.booked & (self.changed == self._session)),
                    # In one cycle with the acknowledgement: what a life grants must not go out
                    # with that of the event that begins the next one.
                    granting.eq(grants),
                    generation.eq(Array(self.generations)[asked.row]),
                    limits.eq(self.limits), withheld.eq(self.withheld),
                    due.eq(self.owed),
                ]
                with m.If(asked.direct):
                    m.d.sync += [row.slot.eq(asked.dst_slot), row.local_slot.eq(asked.src_slot),
                                 row.paths.eq(asked.paths[:self._paths])]
                m.d.sync += linked.eq(self._linked(Mux(
                    asked.direct, asked.paths[:self._paths], self._row.paths)))
                if self._selective:  # in the cycle of `next`: that is its ACK
                    m.d.sync += route.word.eq(self.word)
                with m.If(selected):
                    # If there is no route the next telling heals it.
                    m.d.comb += self.told_limits.eq(grants)
                    m.next = "Ways" if self._selective else "Answer"
            if self._selective:
                with m.State("Ways"):
                    good = linked & ~about.avoid
                    m.d.sync += ways.eq(Mux(good.any(), good, linked))
                    with m.If(asked.consumes & ~asked.probe):
                        m.d.sync += path.eq(turn)
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.route.valid.eq(1)
                with m.If(self.route.ready):
                    m.d.comb += [
                        request.ready.eq(1),
                        self.sent.eq(route.ok & ~asked.hello & ~anew),
                    ]
                    # A cycle later, which is still before the next number is read: that the route
                    # is taken is known late. A session that begins anew in this cycle forgets it.
                    m.d.sync += [
                        self.put.eq(self.sent & asked.consumes & ~asked.again
                                    & ~(self.opened & mine)),
                        self.numbered_strobe.eq(self.sent & asked.consumes & ~asked.again
                                                & asked.begins),
                        self.numbered.row.eq(asked.row),
                    ]
                    m.next = "Idle"
        m.d.comb += [self._idle.eq(fsm.ongoing("Idle")), self._matches.eq(fsm.ongoing("Match")),
                     self._selects.eq(fsm.ongoing("Select"))]
        # The session's path or, if the frame may not take that, the next one that it may.
        from_there = ways & (Const(~0, 16) << path)[:16]
        if self._selective:
            with m.If(self.route.valid & self.route.ready & asked.consumes & ~asked.probe):
                m.d.sync += turn.eq(Mux(route.path == self._paths - 1, 0, route.path + 1))
        else:
            m.d.comb += ways.eq(linked)
        m.d.comb += [
            route.ok.eq(there & (row.paths != 0) & (asked.hello | (
                (tag != 0) & alive & ~about.failed
                & ~(asked.again & (asked.epoch != about.epoch))))),
            route.dst_node.eq(node),
            route.src_node.eq(self.node),
            route.dst_slot.eq(row.slot),
            route.src_slot.eq(row.local_slot),
            route.path.eq(first_one(Mux(from_there.any(), from_there, ways))),
            route.paths.eq(row.paths),
            route.stream.eq(session[:exact_log2(self._streams)]),
            route.tag.eq(Mux(asked.hello, asked.tag, tag)),
            route.seq.eq(Mux(asked.hello | asked.again, asked.seq, seq)),
            route.ack.eq(Mux(asked.hello, asked.ack, acks)),
            route.ar.eq(asked.probe | asked.consumes & self.short),
            route.session.eq(session),
            route.epoch.eq(about.epoch),
            self.put_session.eq(session), self.put_seq.eq(seq + 1),
            self.sent_session.eq(session), self.sent_row.eq(asked.row),
            # A frame with a number tells one limit at most, and none if it goes again.
            self.all_told.eq(~asked.again & ((due & (due - 1)) == 0)),
            self.whole.eq(~more & ~(self.booked & mine)),
        ]
        # A frame of the row carries one limit that is to be told; an ACK has all of them. The
        # entries are signals of their own: a payload that is made from itself is a loop to
        # simulators that order whole signals.
        entries, chosen = [], lowest_bit(due)
        for n, (limit, less) in enumerate(zip(limits, withheld, strict=True)):
            entry = Signal.like(route.credit, name=f"entry{n}")
            entries.append(entry)
            m.d.comb += [
                entry.cls.eq(n),
                entry.generation.eq(Mux(granting, generation, closed_generation(generation))),
                entry.header_limit.eq(Mux(granting, limit.header - less.header, 0)),
                entry.data_limit.eq(Mux(granting, limit.data - less.data, 0)),
                route.credits[n].eq(entry),
            ]
        m.d.comb += [
            self.limit_row.eq(asked.row),
            route.crx.eq(granting & asked.consumes & due.any()),
            Value.cast(route.credit).eq(one_hot_mux(chosen, entries)),
            self.told_row.eq(asked.row),
            self.told_mask.eq(Mux(asked.consumes, lowest_bit(self.owed), ~0)),
            self.numbered.seq.eq(seq),
        ]

    def _tell_limits(self, m):
        """ACKs that tell limits of a row, no matter what came."""
        want, reply, row = self.want, self.say.payload, Signal(PeerRow)
        path, failed, session = Signal.like(self.about.path), Signal(), Signal.like(self._session)
        m.d.comb += [
            self._wanted[Asker.LIMITS].eq(want.payload),
            reply.type.eq(FrameType.ACK), reply.row.eq(want.payload), reply.session.eq(session),
            reply.dst_slot.eq(row.slot), reply.src_slot.eq(row.local_slot),
        ]
        with m.FSM(name="limits"):
            with m.State("Ask"):
                m.d.comb += self._wants[Asker.LIMITS].eq(want.valid)
                with m.If(self._granted == Asker.LIMITS):
                    m.next = "Look"
            with m.State("Look"):
                m.d.sync += [row.eq(self._row), row.paths.eq(self._linked(self._row.paths)),
                             session.eq(self._session),
                             path.eq(self.about.path),
                             failed.eq(self.about.failed | self.down | ~self._known)]
                with m.If((self._asker == Asker.LIMITS) & ~self._selects):
                    m.next = "Offer"
            with m.State("Offer"):
                m.d.comb += self.say.valid.eq(~failed)
                with m.If(self.say.ready | failed):
                    m.d.comb += want.ready.eq(1)
                    m.next = "Ask"
        there = row.paths & (Const(~0, 16) << path)[:16]
        m.d.comb += reply.path.eq(first_one(Mux(there.any(), there, row.paths)))

    def _watch_rows(self, m):
        """Look the sessions of all rows up, one after the other; what changes in between is told.
        Who a row was with when it was looked up is kept: if it has got another peer since, nobody
        knows yet."""
        turn, gone = Signal(range(self._rows)), Signal()
        key = data.StructLayout({"node": 12, "stream": 4})
        m.d.comb += [
            self._wants[Asker.ROWS].eq(1), self._wanted[Asker.ROWS].eq(turn),
            gone.eq(self._known & (self.about.failed | self.down)),
        ]
        with m.If(self._granted == Asker.ROWS):
            m.d.sync += turn.eq(Mux(turn == self._rows - 1, 0, turn + 1))
        for n, row in enumerate(self.rows):
            seen, session = Signal(key, name=f"seen{n}"), Signal.like(
                self._session, name=f"session{n}")
            known, lost = Signal(name=f"known{n}"), Signal(name=f"lost{n}", init=1)
            m.d.comb += self.lost[n].eq(lost | (seen.node != row.node)
                                        | (seen.stream != row.stream))
            with m.If(self.told):
                with m.If(known & (session == self.told_session)):
                    m.d.sync += lost.eq(self.told_lost)
            with m.Elif((self._asker == Asker.ROWS) & (self._row_number == n) & ~self._selects
                        & ~self.hold):
                m.d.sync += [seen.node.eq(self._row.node), seen.stream.eq(self._row.stream),
                             session.eq(self._session), known.eq(self._known), lost.eq(gone)]
