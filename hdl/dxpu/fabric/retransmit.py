"""Which frames are sent again, and when a peer is given up.

Ref: docs/architecture.md, "Retransmission"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..priority import encode, one_hot_mux, round_robin
from .timers import Timers
from .types import EPOCH_BITS

__all__ = ["Repeat", "Retransmitter", "Stored", "TRANSMISSIONS"]

#: How often a frame is sent on one path.
TRANSMISSIONS = 4


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


class Retransmitter(wiring.Component):
    """Go-back-N for all sessions of a proxy.

    Keeps the frames of each session in the order in which they were stored, until they are
    acknowledged. After a NAK all that are left are repeated. When nothing was acknowledged for the
    time of ``wait`` the oldest is repeated, as a probe; once it is acknowledged, so are the others.
    Each time that fails the wait doubles. After :data:`TRANSMISSIONS` of them the next path is
    taken; when none is left the session has failed: its frames are given up, and nothing happens
    until it is opened again.

    A frame that is stored while others are to be repeated is repeated behind them, as it went
    before them.

    Parameters
    ----------
    sessions, paths : int
    cells : int
        Of the replay memory.

    Members
    -------
    wait : 16
        First wait in units of 64 cycles, from the last transmission or progress.
    open : ``sessions``
        Strobes: give up all frames, and begin anew.
    stored : :class:`Stored`, ``stored_strobe`` : 1
        A frame is on its way for the first time.
    acked : array of numbers
        How many more frames of each session were acknowledged; at most ``unacked``.
    back : ``sessions``
        Strobes: a NAK. The frames before the missing one were acknowledged in the same cycle or
        before.
    unacked : array of numbers
    repeat, repeat_valid, repeat_take : :class:`Repeat`, 1, 1
        The next frame to be sent again, until it is taken or acknowledged. Must not be taken while
        a frame has its number and is not stored yet.
    free : stream of cell numbers
        Frames that may be forgotten.
    path : array of numbers
        By session: paths from this one on, and round, are to be tried.
    failed : ``sessions``
    epoch : array of numbers
        Of the session now.
    stat_timeout : 1
        Pulse: a wait ended.
    stat_failed : 1
        Pulse: a session failed.
    """

    def __init__(self, *, sessions, paths, cells):
        self._sessions, self._paths, self._cells = sessions, paths, cells
        amount = range(cells + 1)
        super().__init__({
            "wait": In(16, init=488),
            "open": In(sessions),
            "stored": In(Stored(cells)),
            "stored_strobe": In(1),
            "acked": In(data.ArrayLayout(Shape.cast(amount).width, sessions)),
            "back": In(sessions),
            "unacked": Out(data.ArrayLayout(Shape.cast(amount).width, sessions)),
            "repeat": Out(Repeat(cells)),
            "repeat_valid": Out(1),
            "repeat_take": In(1),
            "free": Out(stream.Signature(range(cells))),
            "path": Out(data.ArrayLayout(max(1, (paths - 1).bit_length()), sessions)),
            "failed": Out(sessions),
            "epoch": Out(data.ArrayLayout(EPOCH_BITS, sessions)),
            "stat_timeout": Out(1),
            "stat_failed": Out(1),
            **self._more(),
        })

        def each(shape, name):
            return [Signal(shape, name=f"{name}{n}") for n in range(sessions)]

        # Frames of a session: kept, of these to be freed, and to be sent again (the newest ones).
        self._held, self._due, self._again = (each(amount, x) for x in ("held", "due", "again"))
        # Cells of the oldest and the newest frame, and of the next one to be sent again.
        self._head, self._tail, self._cursor = (
            each(range(cells), x) for x in ("head", "tail", "cursor"))
        self._probing = Signal(sessions)  #: only the oldest is sent again for now
        self._probed = Signal(sessions)   #: that has happened
        self._rewind = Signal(sessions)   #: all are to be sent again, when none is to be freed
        self._freed, self._repeated = Signal(sessions), Signal(sessions)
        self._expired, self._failing = Signal(sessions), Signal(sessions)
        self._ended = Signal(sessions)

    def _more(self):
        """Further members."""
        return {}

    def elaborate(self, platform):
        m = Module()
        many, cell = self._sessions, range(self._cells)
        m.submodules.following = following = Memory(shape=cell, depth=self._cells, init=[])
        link = following.write_port()
        after_head, after_cursor = (following.read_port(transparent_for=[link]) for _ in range(2))
        mine = Signal(many)
        m.d.comb += [
            mine.eq(Mux(self.stored_strobe, 1 << self.stored.session, 0)),
            link.en.eq((mine & Cat(h != 0 for h in self._held)).any()),
            link.addr.eq(one_hot_mux(mine, self._tail)),
            link.data.eq(self.stored.cell),
        ]
        self._release(m, after_head)
        self._offer(m, after_cursor)
        self._timers(m)
        for n in range(many):
            self._account(m, n, mine[n], after_head, after_cursor)
        return m

    def _choose(self, m, sessions, chosen):
        """State that waits for any of ``sessions``, and takes the next of them, one-hot."""
        turn, pick = Signal(range(self._sessions)), Signal(range(self._sessions))
        with m.State("Choose"):
            m.d.comb += pick.eq(round_robin(sessions, turn))
            m.d.sync += [turn.eq(pick), chosen.eq(1 << pick)]
            with m.If(sessions.any()):
                m.next = "Look"

    def _release(self, m, port):
        """Free what was acknowledged, a frame at a time."""
        chosen = Signal(self._sessions)
        due = Cat(d != 0 for d in self._due)
        m.d.comb += port.addr.eq(one_hot_mux(chosen, self._head))
        with m.FSM(name="release"):
            self._choose(m, due, chosen)
            with m.State("Look"):
                m.d.sync += self.free.payload.eq(port.addr)
                m.next = "Free"
            with m.State("Free"):
                m.d.comb += self.free.valid.eq(1)
                with m.If(self.free.ready):
                    m.d.comb += self._freed.eq(chosen)
                    m.next = "Choose"

    def _offer(self, m, port):
        """Offer the next frame to be sent again."""
        chosen = Signal(self._sessions)
        ready = Signal(self._sessions)
        m.d.comb += ready.eq(
            Cat((a != 0) & (d == 0) for a, d in zip(self._again, self._due, strict=True))
            & ~self._rewind & ~(self._probing & self._probed))
        p = self.repeat
        looked = Signal(range(self._cells))  # for what the memory tells the next one
        m.d.sync += looked.eq(port.addr)
        m.d.comb += [
            port.addr.eq(one_hot_mux(chosen, self._cursor)),
            p.session.eq(encode(chosen)),
            p.epoch.eq(one_hot_mux(chosen, self.epoch)),
            p.cell.eq(port.addr),
            p.probe.eq((chosen & self._probing).any()),
        ]
        with m.FSM(name="offer"):
            self._choose(m, ready, chosen)
            with m.State("Look"):
                m.next = "Offer"
            with m.State("Offer"):
                # It may have been acknowledged meanwhile, or all may have to be sent again.
                m.d.comb += self.repeat_valid.eq((ready & chosen).any() & (looked == port.addr))
                with m.If(~self.repeat_valid):
                    m.next = "Choose"
                with m.Elif(self.repeat_take):
                    m.d.comb += self._repeated.eq(chosen)
                    m.next = "Choose"

    def _account(self, m, n, stored, after_head, after_cursor):
        """What happens to the frames of session ``n``."""
        self._chain(m, n, stored, after_head)
        held, due, again = self._held[n], self._due[n], self._again[n]
        head, cursor = self._head[n], self._cursor[n]
        freed, repeated = self._freed[n], self._repeated[n]

        # To be sent again are the newest frames, from the cursor on. One that is freed may be the
        # first of them; one that is stored comes behind them.
        late, rest = freed & (again == held), Signal.like(again, name=f"rest{n}")
        m.d.comb += rest.eq(again - repeated - late)
        m.d.sync += again.eq(rest + (stored & (rest != 0)))
        with m.If(repeated | late):
            m.d.sync += cursor.eq(Mux(repeated, after_cursor.data, after_head.data))
            m.d.sync += self._probed[n].eq(repeated & self._probing[n])
        with m.If(self._rewind[n] & (due == 0)):
            m.d.sync += [again.eq(Mux(held == 0, 0, held + stored)), cursor.eq(head),
                         self._rewind[n].eq(0), self._probed[n].eq(0)]
        with m.If(self.back[n] | (self.acked[n] != 0) & self._probing[n]):
            m.d.sync += [self._rewind[n].eq(1), self._probing[n].eq(0)]
        with m.Elif(self._expired[n]):
            m.d.sync += [self._rewind[n].eq(1), self._probing[n].eq(1)]
        with m.If(self._ended[n]):
            m.d.sync += [self._rewind[n].eq(0), self._probing[n].eq(0), again.eq(0)]

    def _chain(self, m, n, stored, after_head):
        """The frames of session ``n``: which is the oldest, how many are kept and to be freed."""
        held, due, head, freed = self._held[n], self._due[n], self._head[n], self._freed[n]
        ended, stale = Signal(name=f"ended{n}"), Signal(name=f"stale{n}")
        m.d.comb += [
            self.unacked[n].eq(held - due),
            ended.eq(self.open[n] | self._failing[n]),
            self._ended[n].eq(ended),
            # A frame of before the end comes behind all others of its time.
            stale.eq(stored & (self.stored.epoch != self.epoch[n])),
        ]
        m.d.sync += [
            self.epoch[n].eq(self.epoch[n] + ended),
            held.eq(held + stored - freed),
            due.eq(Mux(ended, held + stored, due + self.acked[n] + stale) - freed),
        ]
        with m.If(stored):
            m.d.sync += self._tail[n].eq(self.stored.cell)
        with m.If(freed & (held != 1)):
            m.d.sync += head.eq(after_head.data)
        with m.Elif(stored & (freed | (held == 0))):
            m.d.sync += head.eq(self.stored.cell)

    def _waits(self, n):
        """Session ``n`` has nothing to send again but what waits for an answer."""
        return ~self._rewind[n] & (
            (self._again[n] == 0) | self._probing[n] & self._probed[n])

    def _timers(self, m):
        many = range(self._sessions)
        tries = [Signal(range(TRANSMISSIONS), name=f"tries{n}") for n in many]
        m.submodules.timers = timers = Timers(
            count=self._sessions, width=len(self.wait) + TRANSMISSIONS - 1)
        progress, over = Cat(a != 0 for a in self.acked), Signal(self._sessions)
        first = Cat(self.stored_strobe & (self.stored.session == n) & (self.unacked[n] == 0)
                    for n in many)
        waits = Cat((self.unacked[n] != 0) & self._waits(n) for n in many)
        m.d.comb += [
            timers.start.eq(progress | self._repeated | first),
            timers.value.eq(self.wait << Array(tries)[timers.turn]),
            timers.runs.eq((waits & timers.looks).any() & (self.wait != 0)),
            over.eq(Mux(timers.over, timers.looks & ~progress & ~self.back, 0)),
            self._expired.eq(over & ~self._failing),
            self.stat_timeout.eq(self._expired.any()),
            self.stat_failed.eq(self._failing.any()),
        ]
        for n in many:
            tried, path = Signal(range(self._paths), name=f"tried{n}"), self.path[n]
            m.d.comb += self._failing[n].eq(
                over[n] & (tries[n] == TRANSMISSIONS - 1) & (tried == self._paths - 1))
            with m.If(over[n]):
                m.d.sync += tries[n].eq(tries[n] + 1)
                with m.If(tries[n] == TRANSMISSIONS - 1):
                    m.d.sync += [tries[n].eq(0), tried.eq(tried + 1),
                                 path.eq(Mux(path == self._paths - 1, 0, path + 1))]
            with m.If(self._failing[n]):
                m.d.sync += self.failed[n].eq(1)
            with m.If(progress[n] | self.open[n] | self._failing[n]):
                m.d.sync += [tries[n].eq(0), tried.eq(0)]
            with m.If(self.open[n]):
                m.d.sync += self.failed[n].eq(0)
