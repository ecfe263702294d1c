"""Which frames are sent again, and when a peer is given up.

Ref: docs/explanation/retransmission.md
"""

from amaranth import *
from amaranth.lib import data, enum, fifo, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.contexts import Owned, Scan, Sweep, Words
from dxpu.fabric.wire.types import EPOCH_BITS

__all__ = ["TRANSMISSIONS", "About", "Acknowledged", "Act", "Last", "Repeat", "Retransmitter",
           "Stored"]

#: How often a frame is sent on one path.
TRANSMISSIONS = 4

#: Frames that are sent again before it may be another session's turn.
TURNS = 16


def Stored(cells):
    """Layout: a frame of ``session`` is in the replay memory, from ``cell`` on.

    ``epoch`` is that of the session when the frame got its number, ``path`` the one it took.
    """
    return data.StructLayout(
        {"session": 6, "epoch": EPOCH_BITS, "cell": range(cells), "path": 4})


def Repeat(cells):
    """Layout: a frame of ``session`` to be sent again, if it is still in ``epoch``; with ``probe``
    its receiver is to acknowledge it at once."""
    return data.StructLayout({
        "session": 6, "epoch": EPOCH_BITS, "cell": range(cells), "probe": 1})


def Acknowledged(cells):
    """Layout: ``count`` more frames of ``session`` were acknowledged; then, ``back``: a NAK for
    those behind them, with the number of its ``request``; or ``named``: a SACK with a word
    (selective repeat only)."""
    return data.StructLayout(
        {"session": 6, "count": range(cells + 1), "back": 1, "request": 1, "named": 1})


def About(paths):
    """Layout: what a frame of a session must know that is to be sent.

    ``path``: paths from this one on, and round, are to be tried; ``avoid``: bit n: path n is dead,
    as it seems (selective repeat only).
    """
    return data.StructLayout({
        "epoch": EPOCH_BITS, "failed": 1, "path": range(max(2, paths)), "avoid": paths})


class Act(enum.Enum, shape=4):
    """What happens to a session."""

    STORED = 0
    OPEN = 1
    ACKED = 2
    FREED = 3
    REPEATED = 4
    #: What is to be freed, or sent again, is looked up.
    FREES = 5
    OFFERS = 6
    #: The session is called.
    CALLED = 7
    #: What was seen of its paths is written down (selective repeat only).
    NOTED = 8


class Last(enum.Enum, shape=2):
    """What made a session send frames again last."""

    #: Nothing, or a probe that was acknowledged.
    NONE = 0
    #: A wait ended: the oldest is sent as a probe.
    PROBE = 1
    #: A NAK took effect, with the request 0, or 1.
    NAK0 = 2
    NAK1 = 3

    @classmethod
    def nak(cls, request):
        """The value for a NAK with that request."""
        return Cat(request, 1)

    @classmethod
    def probing(cls, word):
        """Whether it was a wait, by the word of the session."""
        return word.last == cls.PROBE


class Retransmitter(wiring.Component):
    """Go-back-N for all sessions of a proxy.

    Keeps the frames of each session in the order in which they were stored, until they are
    acknowledged. After a NAK all that are left are repeated; one with the same request, before a
    wait ended, has no effect: it is a copy, whatever it acknowledges. When nothing was acknowledged
    for the time of ``wait`` the oldest is repeated, as a probe; once it is acknowledged, so are the
    others. Each time that fails the wait doubles. After :data:`TRANSMISSIONS` of them the next path
    is taken, or if there is only one the same once more: an Ethernet switch that is full may drop
    so many. When none is left the session has failed: its frames are given up, and nothing happens
    until it is opened again.

    A frame that is stored while others are to be repeated is repeated behind them, as it went
    before them.

    The state of a session is a word in a memory that the retransmitter owns; what others look up
    has a copy in distributed RAM. One session is acted upon in three cycles
    (:class:`~dxpu.fabric.contexts.Owned`); what was stored goes first, and is known six cycles
    after the strobe at the latest (if several were stored in a row, three more for each). After a
    reset it takes a cycle for each session until anything may be stored or looked up.

    Parameters
    ----------
    sessions, paths : int
    cells : int
        Of the replay memory.
    in_a_row : int
        Frames that may be stored in consecutive cycles.
    block : bool
        State of the sessions is in block RAM (:class:`~dxpu.fabric.contexts.Owned`).

    Members
    -------
    wait : 16
        First wait in units of 64 cycles, from the last transmission or progress. Its end is seen
        up to a turn of :class:`~dxpu.fabric.contexts.Sweep` later. With 0 no wait ends, from the
        second cycle on.
    open : stream of numbers of sessions
        Give up all frames, and begin anew.
    stored : :class:`Stored`, ``stored_strobe`` : 1
        A frame is on its way for the first time. At most one in three cycles, but ``in_a_row`` of
        them may come at once where as many times three cycles follow.
    acked : stream of :class:`Acknowledged`
        No more than are unacknowledged. One that waits while its session ends counts for nothing.
    sending, about : number of a session, :class:`About`
        Of that session, in the same cycle.
    receiving, unacked, given_up : number of a session, number, 1
        The same: frames that are not acknowledged; whether the session has failed.
    asked, failed : number of a session, 1
        The same, once more.
    repeat, repeat_valid, repeat_take : :class:`Repeat`, 1, 1
        The next frame to be sent again, until it is taken or acknowledged. Must not be taken while
        a frame has its number and is not stored yet.
    repeat_more : 1
        The next one is another one of the session that the last one was of: before that no new
        frame may leave, as it would come ahead of its turn and be asked for again with all behind
        it. From the cycle after ``repeat_take`` on. Always 0 with selective repeat.
    free : stream of cell numbers
        Frames that may be forgotten.
    stat_timeout : 1
        Pulse: a wait ended.
    stat_failed : 1
        Pulse: a session failed.
    """

    def __init__(self, *, sessions, paths, cells, in_a_row=1, block=True):
        self._sessions, self._paths, self._cells = sessions, paths, cells
        self._in_a_row, self._block = in_a_row, block
        self._amount, number = range(cells + 1), range(sessions)
        self._rounds = max(2, paths)  # times that a path is taken
        self._sweep = Sweep(count=sessions)
        super().__init__({
            "wait": In(16, init=488),
            "open": In(stream.Signature(number)),
            "stored": In(Stored(cells)),
            "stored_strobe": In(1),
            "acked": In(stream.Signature(Acknowledged(cells))),
            "sending": In(number),
            "about": Out(About(paths)),
            "receiving": In(number),
            "unacked": Out(self._amount),
            "given_up": Out(1),
            "asked": In(number),
            "failed": Out(1),
            "repeat": Out(Repeat(cells)),
            "repeat_valid": Out(1),
            "repeat_take": In(1),
            "repeat_more": Out(1),
            "free": Out(stream.Signature(range(cells))),
            "stat_timeout": Out(Counted("Waits for an acknowledgement that ended without one.")),
            "stat_failed": Out(Counted("Sessions that failed: no acknowledgement on any path.")),
            **self._more(),
        })
        cell = range(cells)
        self._word = data.StructLayout({
            # Frames that are kept, of these to be freed; cells of the oldest and the newest one.
            "held": self._amount, "due": self._amount, "head": cell, "tail": cell,
            "about": About(paths),
            # Waits that have ended, paths that were tried, and what is left of this wait.
            "tries": range(TRANSMISSIONS), "tried": range(self._rounds),
            "left": range((1 << 16 + TRANSMISSIONS - 1) + self._sweep.step),
            "last": Last,
            **self._fields(),
        })
        #: What others look up: what a frame to be sent must know, frames not acknowledged.
        self._shown = data.StructLayout({"about": About(paths), "unacked": self._amount})
        #: What is done, to which session, what that knows and is to know.
        self._act, self._acting, self._session = Signal(Act), Signal(), Signal(number)
        self._now, self._then = Signal(self._word), Signal(self._word)
        self._does = {act: Signal(name=f"does_{act.name.lower()}") for act in Act}
        self._stored = Signal.like(self.stored)  #: the frame that was
        #: Sessions that have something to be freed, and to be sent again.
        self._frees, self._offers = Scan(count=sessions), Scan(count=sessions)
        #: Of the session: frames are not acknowledged; its wait runs, and is over with this turn.
        self._keeps, self._runs, self._late = Signal(), Signal(), Signal()
        self._progress, self._back = Signal(), Signal()
        self._expired, self._ended = Signal(), Signal()

    def _more(self):
        """Further members."""
        return {}

    def _fields(self):
        """Further fields of a session's word."""
        cells = range(self._cells)
        return {
            # Frames to be sent again (the newest ones), and the cell of the first.
            "again": self._amount, "cursor": cells,
            "probed": 1,  # the oldest, which alone is to be sent again, was
            "rewind": 1,  # all are to be sent again, when none is to be freed
        }

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Owned(self._word, depth=self._sessions, block=self._block)
        m.submodules.shown = shown = Words(self._shown, depth=self._sessions, reads=3)
        m.submodules.following = following = Memory(
            shape=range(self._cells), depth=self._cells, init=[])
        self._link = link = following.write_port()
        ports = [following.read_port(transparent_for=[link]) for _ in range(2)]
        self._after_head, self._after_cursor = ports
        free, offer = self._release(m), self._offer(m)
        self._choose(m, words, {
            Act.OPEN: (self.open.valid, self.open.payload),
            Act.ACKED: (self.acked.valid, self.acked.payload.session),
            **free, **offer,
        })
        self._happens(m)
        m.d.comb += [
            shown.put.eq(words.put), shown.where.eq(words.session),
            shown.new.about.eq(self._then.about),
            shown.new.unacked.eq(self._then.held - self._then.due),
            shown.at[0].eq(self.sending), self.about.eq(shown.word[0].about),
            shown.at[1].eq(self.receiving), self.given_up.eq(shown.word[1].about.failed),
            self.unacked.eq(shown.word[1].unacked),
            shown.at[2].eq(self.asked), self.failed.eq(shown.word[2].about.failed),
            self.open.ready.eq(self._does[Act.OPEN]),
            self.acked.ready.eq(self._does[Act.ACKED]),
            self.stat_timeout.eq(self._expired),
        ]
        return m

    def _choose(self, m, words, asks):
        """What is done next; ``asks`` are wishes and their sessions, the first come first. No wish
        is withdrawn."""
        m.submodules.sweep = sweep = self._sweep
        takes = Signal()
        stored, arrived = self._keep(m, takes)
        m.d.comb += [
            self._acting.eq(words.acts), self._session.eq(words.session),
            self._now.eq(words.word), words.put.eq(self._acting), words.new.eq(self._then),
            sweep.done.eq(self._does[Act.CALLED]),
        ]
        m.d.sync += [does.eq(words.loads & (self._act == act)) for act, does in self._does.items()]
        coming = words.next_word
        m.d.sync += [
            self._keeps.eq(coming.held != coming.due),
            self._late.eq(coming.left <= sweep.step),
            self._runs.eq(self._waits(coming)),
        ]
        asks = {Act.STORED: (stored, arrived.session), **asks}
        # Who asks for nothing is picked for nothing.
        m.d.comb += words.pick.eq(sweep.session)
        with m.If(words.ready):
            m.d.comb += words.picks.eq(sweep.valid)
            m.d.sync += self._act.eq(Act.CALLED)
            for n, (act, (wish, session)) in enumerate(asks.items()):
                with (m.If if n == 0 else m.Elif)(wish):
                    m.d.comb += [words.pick.eq(session), words.picks.eq(1)]
                    m.d.sync += self._act.eq(act)
        m.d.comb += takes.eq(words.ready & stored)
        with m.If(takes):
            m.d.sync += self._stored.eq(arrived)

    def _keep(self, m, takes):
        """Frames that were stored, until they are taken; returns whether there is one, and the
        first."""
        arrived, valid = Signal.like(self.stored), Signal()
        if self._in_a_row == 1:
            with m.If(self.stored_strobe):
                m.d.sync += [arrived.eq(self.stored), valid.eq(1)]
            with m.Elif(takes):
                m.d.sync += valid.eq(0)
            return valid, arrived
        m.submodules.arrivals = arrivals = fifo.SyncFIFO(
            width=len(Value.cast(arrived)), depth=self._in_a_row)
        m.d.comb += [
            arrivals.w_data.eq(self.stored), arrivals.w_en.eq(self.stored_strobe),
            Value.cast(arrived).eq(arrivals.r_data), valid.eq(arrivals.r_rdy),
            arrivals.r_en.eq(takes),
        ]
        return valid, arrived

    def _happens(self, m):
        """What becomes of the session's word, and who looks for work because of it."""
        now, then = self._now, Signal(self._word)
        does, acked, stored = self._does, self.acked.payload, self._stored
        counts, over, failing = Signal(), Signal(), Signal()
        wait = Signal(range(1 << 16 + TRANSMISSIONS - 1))
        ends, runs = Signal(), Signal()  # waits do, ever; this one does
        m.d.sync += ends.eq(self.wait != 0)
        m.d.comb += [
            then.eq(now),
            # One that waited while the session ended is for frames that were given up.
            counts.eq(does[Act.ACKED] & self._keeps),
            self._progress.eq(counts & (acked.count != 0)),
            self._back.eq(counts & acked.back
                          & (now.last.as_value() != Last.nak(acked.request))),
            runs.eq(does[Act.CALLED] & self._runs & ~self._busy()),
            over.eq(runs & ends & self._keeps & self._late),
            failing.eq(over & (now.tries == TRANSMISSIONS - 1) & (now.tried == self._rounds - 1)),
            self._expired.eq(over & ~failing),
            self._ended.eq(does[Act.OPEN] | failing),
            self.stat_failed.eq(failing),
            self._link.en.eq(does[Act.STORED] & (now.held != 0)),
            self._link.addr.eq(now.tail),
            self._link.data.eq(stored.cell),
        ]
        with m.If(does[Act.STORED]):
            # One of before the end comes behind all others of its time.
            stale = stored.epoch != now.about.epoch
            m.d.comb += [then.held.eq(now.held + 1), then.due.eq(now.due + stale),
                         then.tail.eq(stored.cell)]
            with m.If(now.held == 0):
                m.d.comb += then.head.eq(stored.cell)
        with m.If(does[Act.FREED]):
            m.d.comb += [then.held.eq(now.held - 1), then.due.eq(now.due - 1)]
            with m.If(now.held != 1):
                m.d.comb += then.head.eq(self._after_head.data)
        with m.If(counts):
            m.d.comb += then.due.eq(now.due + acked.count)
        # Times.
        m.d.comb += wait.eq(self.wait << Mux(self._progress, 0, now.tries))
        with m.If(runs):
            m.d.comb += then.left.eq(Mux(self._late, 0, now.left - self._sweep.step))
        with m.If(over):
            m.d.comb += [then.tries.eq(now.tries + 1), then.last.eq(Last.PROBE)]
            with m.If(now.tries == TRANSMISSIONS - 1):
                m.d.comb += [
                    then.tries.eq(0), then.tried.eq(now.tried + 1),
                    then.about.path.eq(Mux(now.about.path == self._paths - 1, 0,
                                           now.about.path + 1)),
                ]
        with m.If(self._progress | self._ended):
            m.d.comb += [then.tries.eq(0), then.tried.eq(0)]
        with m.If(self._progress & Last.probing(now) | self._ended):
            m.d.comb += then.last.eq(Last.NONE)
        with m.If(self._back):
            m.d.comb += then.last.eq(Last.nak(acked.request))
        with m.If(self._ended):
            m.d.comb += [
                then.due.eq(now.held), then.about.epoch.eq(now.about.epoch + 1),
                then.about.failed.eq(failing),
            ]
        with m.If(self._progress | does[Act.REPEATED]
                  | does[Act.STORED] & ~self._keeps):
            m.d.comb += then.left.eq(wait + self._sweep.step)
        self._goes_on(m, now, then)
        # A cycle later. Who looks for work is not that quick, or finds out when it has the word.
        knows, acted = Signal(self._word), Signal()
        m.d.sync += [knows.eq(self._then), acted.eq(self._acting)]
        for scan, bit in ((self._frees, knows.due != 0), (self._offers, self._ready(knows))):
            m.d.comb += [scan.put.eq(acted), scan.where.eq(self._session), scan.bit.eq(bit)]

    def _goes_on(self, m, now, then):
        """What is sent again of the session: from ``then``, what it is to know."""
        does = self._does
        middle = Signal(self._word)
        m.d.comb += [middle.eq(then), self._then.eq(middle)]
        # To be sent again are the newest frames, from the cursor on. One that is freed may be the
        # first of them; one that is stored comes behind them.
        with m.If(does[Act.STORED] & (now.again != 0)):
            m.d.comb += middle.again.eq(now.again + 1)
        with m.If(does[Act.FREED] & (now.again == now.held)):
            m.d.comb += [middle.again.eq(now.again - 1), middle.probed.eq(0),
                         middle.cursor.eq(self._after_head.data)]
        with m.If(does[Act.REPEATED] & ~self._moved):
            m.d.comb += [middle.again.eq(now.again - 1), middle.probed.eq(Last.probing(now)),
                         middle.cursor.eq(self._after_cursor.data)]
        with m.If(self._back | self._progress & Last.probing(now) | self._expired):
            m.d.comb += middle.rewind.eq(1)
        with m.If(self._ended):
            m.d.comb += [middle.rewind.eq(0), middle.again.eq(0)]
        with m.If(middle.rewind & (middle.due == 0)):
            m.d.comb += [self._then.rewind.eq(0), self._then.probed.eq(0),
                         self._then.again.eq(middle.held), self._then.cursor.eq(middle.head)]

    def _waits(self, word):
        """The session has nothing to send again but what waits for an answer."""
        return ~word.rewind & ((word.again == 0) | Last.probing(word) & word.probed)

    def _busy(self):
        """The session that is acted upon has something to send again, whatever its word says."""
        return Const(0)

    def _ready(self, word):
        """It has something to send again."""
        return ((word.again != 0) & (word.due == 0) & ~word.rewind
                & ~(Last.probing(word) & word.probed))

    def _release(self, m):
        """Free what was acknowledged, a frame at a time; returns what it asks for."""
        m.submodules.frees = scan = self._frees
        looks, done, more = Signal(), Signal(), Signal()
        port = self._after_head
        m.d.comb += [scan.hold.eq(1), self.free.payload.eq(port.addr)]
        with m.FSM(name="release"):
            with m.State("Choose"):
                m.d.comb += scan.hold.eq(0)
                with m.If(scan.found):
                    m.next = "Look"
            with m.State("Look"):
                m.d.comb += looks.eq(1)
                with m.If(self._does[Act.FREES]):
                    m.d.sync += port.addr.eq(self._now.head)
                    m.next = "Freed"
            # Its cell may be used, and linked, again as soon as it is free.
            with m.State("Freed"):
                m.d.comb += done.eq(1)
                with m.If(self._does[Act.FREED]):
                    m.d.sync += more.eq(self._now.due != 1)
                    m.next = "Free"
            with m.State("Free"):
                m.d.comb += self.free.valid.eq(1)
                with m.If(self.free.ready):
                    # Nothing else moves the head on.
                    m.d.sync += port.addr.eq(port.data)
                    m.next = "Choose"
                    with m.If(more):
                        m.next = "Freed"
        return {Act.FREED: (done, scan.at), Act.FREES: (looks, scan.at)}

    def _offer(self, m):
        """Offer the next frame to be sent again; returns what it asks for."""
        m.submodules.offers = scan = self._offers
        looks, done, turns = Signal(), Signal(), Signal(range(TURNS))
        port, now, p = self._after_cursor, self._now, self.repeat
        self._astray = astray = Signal()  # it was acknowledged, or all have to be sent again
        self._moved = moved = Signal()    # the cursor is not that of this frame any more
        mine, rewinds = self._session == scan.at, Signal()
        m.d.comb += [scan.hold.eq(1), p.session.eq(scan.at),
                     p.cell.eq(port.addr)]
        m.d.comb += rewinds.eq(self._back | self._expired | self._ended
                               | self._progress & Last.probing(now))
        # Whether more is owed to the session that was served last, if only when all is freed that
        # was acknowledged meanwhile.
        last, more, then = Signal.like(scan.at), Signal(), self._then
        with m.If(self._acting & (self._does[Act.REPEATED] | (self._session == last))):
            m.d.sync += more.eq((then.rewind | (then.again != 0))
                                & ~(Last.probing(then) & then.probed))
        m.d.comb += self.repeat_more.eq(more)
        with m.If(mine & (rewinds | self._progress)):
            m.d.sync += astray.eq(1)
        with m.If(mine & (rewinds | self._does[Act.FREED] & (now.again == now.held))):
            m.d.sync += moved.eq(1)
        with m.FSM(name="offer"):
            with m.State("Choose"):
                m.d.comb += scan.hold.eq(0)
                with m.If(scan.found):
                    m.next = "Look"
            with m.State("Look"):
                m.d.comb += looks.eq(1)
                with m.If(self._does[Act.OFFERS]):
                    m.d.sync += [port.addr.eq(now.cursor), p.epoch.eq(now.about.epoch),
                                 p.probe.eq(Last.probing(now)), astray.eq(~self._ready(now)),
                                 moved.eq(0)]
                    m.next = "Offer"
            with m.State("Offer"):
                m.d.comb += self.repeat_valid.eq(~astray)
                with m.If(astray):
                    m.next = "Choose"
                with m.Elif(self.repeat_take):
                    m.next = "Sent"
            with m.State("Sent"):
                m.d.comb += [done.eq(1), self.repeat_more.eq(1)]
                m.d.sync += last.eq(scan.at)
                with m.If(self._does[Act.REPEATED]):
                    m.next = "Settle"
            with m.State("Settle"):
                # NAKs of one session may never end: others are next now and then.
                m.d.comb += scan.skip.eq(turns == 0)
                m.d.sync += turns.eq(turns + 1)
                m.next = "Choose"
        return {Act.REPEATED: (done, scan.at), Act.OFFERS: (looks, scan.at)}
