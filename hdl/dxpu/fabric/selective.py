"""Selective repeat: of the frames that a peer has not acknowledged, those that were lost are sent
again.

Ref: docs/architecture.md, "Selective repeat"
"""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..priority import encode, one_hot_mux
from .early import WINDOW
from .retransmit import Retransmitter, Stored

__all__ = ["STAMP_BITS", "SelectiveRetransmitter"]

#: Bits of the number of a transmission. Two that are compared are closer than half of what these
#: count: a window, and what else leaves in the time after which a session fails.
STAMP_BITS = 16


def before(one, other):
    """Whether stamp ``one`` is older than ``other``."""
    return (one - other)[STAMP_BITS - 1]


class SelectiveRetransmitter(Retransmitter):
    """Selective repeat for all sessions of a proxy.

    As :class:`Retransmitter`, but after a SACK with a word only what was lost is sent again: a
    frame that the word does not name, and that was sent, the last time, on the same path before one
    that it does name. So frames of different paths may overtake each other, and each loss costs one
    repetition. Every transmission has a stamp, the number of frames that left before it; stamp and
    path of the last one are kept for each frame.

    After a NAK all that are left are repeated that are not named. When nothing was acknowledged for
    a time the oldest frame is repeated as a probe, named or not, and once it is acknowledged all
    that were sent before it.

    The frames of one session at a time are walked over from the oldest on, two cycles for each;
    twice for a SACK: to see what has arrived, and what has not. While one is sent again the walk
    waits until it leaves. An acknowledgement in between makes the word of a SACK useless; the next
    one has another.

    Where sessions have several paths, one on which the wait for a frame has ended twice is to be
    avoided, until 64 first waits are over; what arrived by it in between counts for it.

    Parameters
    ----------
    sessions, paths, cells : int

    Members
    -------
    As of :class:`Retransmitter`, and:

    named, word : ``sessions``, 64
        Strobes: a SACK with this word. Its ACK counted in the same cycle.
    resent, resent_strobe : :class:`~dxpu.fabric.retransmit.Stored`, 1
        The frame that was taken last begins to leave (or cannot). Not in the cycle of
        ``stored_strobe``, in which one has left for the first time.
    avoid : array of bit masks
        Bit n: path n is dead, as it seems, for this session.
    """

    def _more(self):
        return {"named": In(self._sessions), "word": In(WINDOW),
                "resent": In(Stored(self._cells)), "resent_strobe": In(1),
                "avoid": Out(data.ArrayLayout(self._paths, self._sessions))}

    def __init__(self, *, sessions, paths, cells):
        super().__init__(sessions=sessions, paths=paths, cells=cells)
        # What is wanted of each session: the oldest, all, all before the probe, what is lost.
        self._probe, self._all, self._rest, self._lost = (
            Signal(sessions, name=name) for name in ("probe", "all", "rest", "lost"))
        self._fits = Signal(sessions)           #: the word of the last SACK is still right
        self._walked = Signal(sessions)         #: one-hot: session that is walked over
        # Of the session that is walked over: paths on which a wait has ended, something arrived.
        self._missed, self._proved = Signal(paths), Signal(paths)
        self._retry = Signal()                  #: all paths are to be tried again
        self._clear = Signal(4)                 #: strobes for its wishes, in that order
        self._stamp = Signal(STAMP_BITS)        #: of the next transmission

    def _waits(self, n):
        return ~(self._probe | self._all | self._rest | self._lost | self._walked)[n]

    def _account(self, m, n, stored, after_head, after_cursor):
        self._chain(m, n, stored, after_head)
        progress = self.acked[n] != 0
        mine = self._walked[n]
        for k, (wish, wanted) in enumerate((
                (self._probe, self._expired[n]), (self._all, self.back[n]),
                (self._rest, progress & self._probing[n]), (self._lost, self.named[n]))):
            with m.If(self._ended[n]):
                m.d.sync += wish[n].eq(0)
            with m.Elif(wanted):
                m.d.sync += wish[n].eq(1)
            with m.Elif(mine & self._clear[k]):
                m.d.sync += wish[n].eq(0)
        with m.If(progress | self._ended[n]):
            m.d.sync += self._probing[n].eq(0)
        with m.Elif(self._expired[n]):
            m.d.sync += self._probing[n].eq(1)
        with m.If(self.named[n]):
            m.d.sync += self._fits[n].eq(1)
        with m.Elif(progress | self._ended[n]):
            m.d.sync += self._fits[n].eq(0)

        missed = Signal(self._paths, name=f"missed{n}")
        with m.If(self._retry | self._ended[n]):
            m.d.sync += [missed.eq(0), self.avoid[n].eq(0)]
        with m.Elif(mine):
            m.d.sync += [
                missed.eq((missed | self._missed) & ~self._proved),
                self.avoid[n].eq((self.avoid[n] | missed & self._missed) & ~self._proved),
            ]

    def _notes(self, m):
        """Stamp and path of the last transmission of each frame; returns where they are read."""
        note = data.StructLayout({"stamp": STAMP_BITS, "path": range(max(2, self._paths))})
        m.submodules.notes = notes = Memory(shape=note, depth=self._cells, init=[])
        write, sent = notes.write_port(), Mux(self.stored_strobe, self.stored, self.resent)
        left = Signal(self.stored.shape())
        m.d.comb += [
            left.eq(sent),
            write.en.eq(self.stored_strobe | self.resent_strobe),
            write.addr.eq(left.cell),
            write.data.stamp.eq(self._stamp),
            write.data.path.eq(left.path),
        ]
        m.d.sync += self._stamp.eq(self._stamp + write.en)
        return notes.read_port(transparent_for=[write])

    def _words(self, m, session):
        """Words of SACKs and stamps of probes; returns those of ``session``, and a strobe for the
        latter."""
        m.submodules.words = words = Memory(shape=WINDOW, depth=self._sessions, init=[])
        m.submodules.probes = probes = Memory(shape=STAMP_BITS, depth=self._sessions, init=[])
        word_in, word, probe_in, probe = (
            words.write_port(), words.read_port(domain="comb"),
            probes.write_port(), probes.read_port(domain="comb"))
        m.d.comb += [
            word_in.en.eq(self.named.any()),
            word_in.addr.eq(encode(self.named)),
            word_in.data.eq(self.word),
            word.addr.eq(session),
            probe_in.addr.eq(session),
            probe_in.data.eq(self._stamp),
            probe.addr.eq(session),
        ]
        return word.data, probe.data, probe_in.en

    def _offer(self, m, port):
        """The walk: offers each frame that is to be sent again."""
        chosen, session = Signal(self._sessions), Signal(range(self._sessions))
        note = self._notes(m)
        known, probe_stamp, probed = self._words(m, session)
        wanted, due = Signal(self._sessions), Cat(d != 0 for d in self._due)
        m.d.comb += [
            wanted.eq((self._probe | self._all | self._rest | self._lost) & ~due),
            session.eq(encode(chosen)),
        ]

        def of(values):
            return one_hot_mux(chosen, values)

        # The walk is at frame `cursor`; `left` from it on, `behind` that are not acknowledged.
        cursor, left, behind = (Signal(range(self._cells)), Signal(range(self._cells + 1)),
                                Signal(range(self._cells + 1)))
        # A SACK may overtake an older one: what has arrived, and what has not, is seen by one word.
        first, word, whole = Signal(), Signal(WINDOW), Signal(WINDOW)
        second, moved = Signal(), Signal()  # walk by that word; it begins elsewhere by now
        # Only the oldest; all that left before `until`, once that is `fixed`; else what is lost.
        only, every, fixed, until = Signal(), Signal(), Signal(), Signal(STAMP_BITS)
        looks = Signal()        # for what has arrived
        astray = Signal()       # the frame was acknowledged, or the session has ended
        acked, stored = Signal.like(self.acked[0]), Signal()
        named, lost, past, ended, fits = (Signal(name=n) for n in (
            "is_named", "is_lost", "past", "ended", "fits"))
        m.d.comb += [
            port.addr.eq(cursor), note.addr.eq(cursor),
            acked.eq(of(self.acked)),
            stored.eq(self.stored_strobe & chosen.bit_select(self.stored.session, 1)),
            past.eq(acked > behind),
            ended.eq((chosen & self._ended).any()),
            named.eq(~first & word[0]),
            fits.eq((chosen & self._fits).any()),
        ]
        m.d.sync += [
            left.eq(left + stored), behind.eq(behind - acked),
            astray.eq(astray | past | ended), moved.eq(moved | (acked != 0)),
        ]

        by = Signal(self._paths)                # path of the frame, one-hot
        age = Signal(28)
        m.d.comb += [by.eq(1 << note.data.path), self._retry.eq(age[12:] >= self.wait)]
        m.d.sync += age.eq(Mux(self._retry, 0, age + 1))

        newest = [Signal(data.StructLayout({"stamp": STAMP_BITS, "valid": 1}), name=f"newest{n}")
                  for n in range(self._paths)]
        latest = Signal(newest[0].shape())
        m.d.comb += [
            latest.eq(Array(newest)[note.data.path] if self._paths > 1 else newest[0]),
            lost.eq(only | ~named & Mux(
                every, ~fixed | before(note.data.stamp, until),
                latest.valid & before(note.data.stamp, latest.stamp))),
        ]

        p = self.repeat
        m.d.comb += [
            p.session.eq(session), p.cell.eq(cursor), p.epoch.eq(of(self.epoch)), p.probe.eq(only),
        ]

        def advance():
            """To the next frame, or to the end of the walk."""
            m.d.sync += [cursor.eq(port.data), left.eq(left - 1), behind.eq(behind + 1 - acked),
                         first.eq(0), word.eq(Mux(first, word, word >> 1))]
            m.next = "Fetch"
            with m.If((left == 1) | only):
                m.d.sync += [looks.eq(0), second.eq(looks)]
                m.next = "Choose"
                with m.If(looks):
                    m.next = "Begin"

        with m.FSM(name="walk") as walk:
            self._choose(m, wanted, chosen)
            with m.State("Look"):
                probe, again, rest = (of(w) for w in (self._probe, self._all, self._rest))
                m.d.comb += self._clear.eq(Mux(probe, 0b0001, Mux(again | rest, 0b1110, 0b1000)))
                m.d.sync += [
                    only.eq(probe), every.eq(again | rest), fixed.eq(~again),
                    until.eq(probe_stamp), looks.eq(~(probe | again | rest)), second.eq(0),
                    *(n.valid.eq(0) for n in newest),
                ]
                m.next = "Begin"
            with m.State("Begin"):
                with m.If(ended | (of(self._held) == 0)):
                    m.next = "Choose"
                with m.Elif((of(self._due) == 0) & (acked == 0) & ~stored):
                    m.d.sync += [cursor.eq(of(self._head)), left.eq(of(self._held)), behind.eq(0),
                                 first.eq(1), astray.eq(0)]
                    m.next = "Fetch"
                    with m.If(second):
                        m.d.sync += word.eq(whole)
                        with m.If(moved):
                            m.next = "Choose"
                    with m.Else():
                        m.d.sync += [word.eq(Mux(fits, known, 0)), whole.eq(known), moved.eq(0)]
                        with m.If(~only & ~every & ~fits):
                            m.next = "Choose"
            with m.State("Fetch"):
                m.next = "Weigh"
            with m.State("Weigh"):
                m.d.comb += [self._missed.eq(Mux(only & ~stored, by, 0)),
                             self._proved.eq(Mux(looks & named, by, 0))]
                with m.If(astray):
                    m.next = "Choose"
                    with m.If(every):
                        m.next = "Begin"
                with m.Elif(~stored):
                    with m.If(looks | ~lost):
                        advance()
                    with m.Else():
                        m.next = "Offer"
                with m.If(looks & named & (~latest.valid | before(latest.stamp, note.data.stamp))):
                    for n, one in enumerate(newest):
                        with m.If(note.data.path == n):
                            m.d.sync += [one.stamp.eq(note.data.stamp), one.valid.eq(1)]
            with m.State("Offer"):
                m.d.comb += self.repeat_valid.eq(~astray)
                with m.If(astray):
                    m.next = "Choose"
                    with m.If(every):
                        m.next = "Begin"
                with m.Elif(self.repeat_take):
                    m.next = "Leave"
            with m.State("Leave"):
                with m.If(self.resent_strobe):
                    m.d.comb += [self._repeated.eq(chosen), probed.eq(only)]
                    # Whatever had its number by now is among those to be sent again.
                    with m.If(~fixed):
                        m.d.sync += [fixed.eq(1), until.eq(self._stamp)]
                    advance()
        m.d.comb += self._walked.eq(Mux(walk.ongoing("Choose"), 0, chosen))
