"""Selective repeat: of the frames that a peer has not acknowledged, those that were lost are sent
again.

Ref: docs/explanation/selective-repeat.md
"""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted

from .early import WINDOW
from .retransmit import Act, Last, Retransmitter, Stored

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
    sessions, paths, cells, in_a_row : int
    block : bool

    Members
    -------
    As of :class:`Retransmitter`, and:

    word : 64
        Of the SACK that ``acked`` says is ``named``; its ACK counts first.
    stat_unsent : 1
        Pulse: a SACK named frames that were never sent; that had no effect.
    resent, resent_strobe : :class:`~dxpu.fabric.arq.retransmit.Stored`, 1
        The frame that was taken last begins to leave (or cannot). Not in the cycle of
        ``stored_strobe``, in which one has left for the first time.
    """

    def __init__(self, *, sessions, paths, cells, in_a_row=1, block=True):
        super().__init__(sessions=sessions, paths=paths, cells=cells, in_a_row=in_a_row,
                         block=block)
        self._stamp = Signal(STAMP_BITS)        #: of the next transmission
        self._walks = Signal()                  #: over the session that is acted upon
        self._picks = Signal()                  #: what is wanted of that is decided
        # Of the session that is walked over: paths on which a wait has ended, something arrived.
        self._missed, self._proved = Signal(paths), Signal(paths)

    def _more(self):
        return {"word": In(WINDOW), "resent": In(Stored(self._cells)), "resent_strobe": In(1),
                "stat_unsent": Out(Counted(
                    "SACKs that name frames that were never sent; ignored."))}

    def _fields(self):
        return {
            # What is wanted: the oldest, all, all before the probe, what is lost.
            "probe": 1, "all": 1, "rest": 1, "lost": 1,
            "fits": 1,              # the word of the last SACK is still right
            "missed": self._paths,  # a wait has ended there
        }

    def _waits(self, word):
        return ~self._wishes(word)

    def _busy(self):
        return self._walks

    def _ready(self, word):
        return self._wishes(word) & (word.due == 0)

    @staticmethod
    def _wishes(word):
        return word.probe | word.all | word.rest | word.lost

    def _goes_on(self, m, now, then):
        does, acked = self._does, self.acked.payload
        new = self._then
        m.d.comb += new.eq(then)
        with m.If(does[Act.ACKED]):
            m.d.comb += [
                new.all.eq(now.all | self._back),
                new.rest.eq(now.rest | self._progress & Last.probing(now)),
                new.lost.eq(now.lost | acked.named),
                new.fits.eq(acked.named | now.fits & ~self._progress),
            ]
        with m.If(self._expired):
            m.d.comb += new.probe.eq(1)
        with m.If(self._picks):
            m.d.comb += new.probe.eq(0)
            with m.If(~now.probe):
                m.d.comb += new.lost.eq(0)
                with m.If(now.all | now.rest):
                    m.d.comb += [new.all.eq(0), new.rest.eq(0)]
        with m.If(self._ended):
            m.d.comb += [new[name].eq(0) for name in self._fields()]

        # Paths; all of them are to be tried again now and then.
        age, left = Signal(28), Signal(range(self._sessions + 1))
        retry = age[12:] >= self.wait
        m.d.sync += age.eq(Mux(retry, 0, age + 1))
        with m.If(does[Act.CALLED] & (left != 0)):
            m.d.sync += left.eq(left - 1)
        with m.If(retry):
            m.d.sync += left.eq(self._sessions)
        with m.If(does[Act.CALLED] & (left != 0) | self._ended):
            m.d.comb += [new.missed.eq(0), new.about.avoid.eq(0)]
        with m.Elif(does[Act.NOTED]):
            m.d.comb += [
                new.missed.eq((now.missed | self._missed) & ~self._proved),
                new.about.avoid.eq((now.about.avoid | now.missed & self._missed)
                                   & ~self._proved),
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

    def _remember(self, m, session):
        """Words of SACKs and stamps of probes; returns those of ``session``, and a strobe for the
        latter."""
        m.submodules.sacks = words = Memory(shape=WINDOW, depth=self._sessions, init=[])
        m.submodules.probes = probes = Memory(shape=STAMP_BITS, depth=self._sessions, init=[])
        word_in, word, probe_in, probe = (
            words.write_port(), words.read_port(domain="comb"),
            probes.write_port(), probes.read_port(domain="comb"))
        m.d.comb += [
            word_in.en.eq(self._does[Act.ACKED] & self.acked.payload.named),
            word_in.addr.eq(self._session),
            word_in.data.eq(self.word),
            word.addr.eq(session),
            probe_in.addr.eq(session),
            probe_in.data.eq(self._stamp),
            probe.addr.eq(session),
        ]
        return word.data, probe.data, probe_in.en

    def _offer(self, m):
        """The walk: offers each frame that is to be sent again."""
        m.submodules.offers = scan = self._offers
        looks, done, notes = Signal(), Signal(), Signal()
        port, now, does = self._after_cursor, self._now, self._does
        note = self._notes(m)
        known, probe_stamp, probed = self._remember(m, scan.at)

        # The walk is at frame `cursor`; `left` from it on, `behind` that are not acknowledged.
        cursor, left, behind = Signal(range(self._cells)), Signal(self._amount), Signal(
            self._amount)
        # A SACK may overtake an older one: what has arrived, and what has not, is seen by one word.
        first, word, whole = Signal(), Signal(WINDOW), Signal(WINDOW)
        further = Signal(WINDOW)    # the word, as the next frame sees it
        m.d.comb += further.eq(Mux(first, word, word >> 1))
        second, moved = Signal(), Signal()  # walk by that word; it begins elsewhere by now
        # Only the oldest; all that left before `until`, once that is `fixed`; else what is lost.
        only, every, fixed, until = Signal(), Signal(), Signal(), Signal(STAMP_BITS)
        tells = Signal()        # of what has arrived; by this walk nothing is sent again
        astray = Signal()       # the frame was acknowledged
        over = Signal()         # the session has ended
        mine, acked, stored = Signal(), Signal(self._amount), Signal()
        named, lost = Signal(), Signal()
        m.d.comb += [
            scan.hold.eq(1),
            port.addr.eq(cursor), note.addr.eq(cursor),
            mine.eq(self._session == scan.at),
            acked.eq(Mux(mine & does[Act.ACKED], self.acked.payload.count, 0)),
            stored.eq(mine & does[Act.STORED]),
            named.eq(~first & word[0]),
        ]
        m.d.sync += [
            left.eq(left + stored), behind.eq(behind - acked),
            astray.eq(astray | (acked > behind)), moved.eq(moved | (acked != 0)),
            over.eq(over | mine & self._ended),
        ]

        newest = [Signal(data.StructLayout({"stamp": STAMP_BITS, "valid": 1}), name=f"newest{n}")
                  for n in range(self._paths)]
        by, latest = Signal(self._paths), Signal(newest[0].shape())  # path of the frame
        m.d.comb += [
            by.eq(1 << note.data.path),
            latest.eq(Array(newest)[note.data.path] if self._paths > 1 else newest[0]),
            lost.eq(only | ~named & Mux(
                every, ~fixed | before(note.data.stamp, until),
                latest.valid & before(note.data.stamp, latest.stamp))),
        ]
        p = self.repeat
        m.d.comb += [p.session.eq(scan.at), p.cell.eq(cursor), p.probe.eq(only)]

        def advance():
            """To the next frame, or to the end of the walk."""
            m.d.sync += [cursor.eq(port.data), left.eq(left - 1), behind.eq(behind + 1 - acked),
                         first.eq(0), word.eq(further)]
            m.next = "Fetch"
            with m.If((left == 1) | only):
                m.d.sync += [tells.eq(0), second.eq(tells)]
                m.next = "Note"
                with m.If(tells):
                    # Behind the newest frame there is none to be named.
                    m.d.comb += self.stat_unsent.eq(further.any())
                    m.next = "Begin"

        def strays():
            """The walk ends, or begins anew with the oldest that is left."""
            m.next = "Note"
            with m.If(every & ~over):
                m.next = "Begin"

        with m.FSM(name="walk") as walk:
            with m.State("Choose"):
                m.d.comb += scan.hold.eq(0)
                with m.If(scan.found):
                    m.next = "Look"
            with m.State("Look"):
                m.d.comb += [looks.eq(1), self._picks.eq(does[Act.OFFERS])]
                m.d.sync += [over.eq(0), self._missed.eq(0), self._proved.eq(0),
                             *(n.valid.eq(0) for n in newest)]
                with m.If(self._picks):
                    others = ~now.probe & (now.all | now.rest)
                    m.d.sync += [
                        only.eq(now.probe), every.eq(others), fixed.eq(~now.all),
                        until.eq(probe_stamp), tells.eq(~now.probe & ~others), second.eq(0),
                    ]
                    m.next = "Begin"
            with m.State("Begin"):
                m.d.comb += looks.eq(~over)
                with m.If(over | does[Act.OFFERS] & (now.held == 0)):
                    m.d.comb += self.stat_unsent.eq(~over & tells & now.fits & known.any())
                    m.next = "Note"
                with m.Elif(does[Act.OFFERS] & (now.due == 0)):
                    m.d.sync += [
                        cursor.eq(now.head), left.eq(now.held), behind.eq(0), first.eq(1),
                        astray.eq(0), p.epoch.eq(now.about.epoch),
                    ]
                    m.next = "Fetch"
                    with m.If(second):
                        m.d.sync += word.eq(whole)
                        with m.If(moved):
                            m.next = "Note"
                    with m.Else():
                        m.d.sync += [word.eq(Mux(now.fits, known, 0)), whole.eq(known),
                                     moved.eq(0)]
                        with m.If(~only & ~every & ~now.fits):
                            m.next = "Note"
            with m.State("Fetch"):
                m.next = "Weigh"
            with m.State("Weigh"):
                m.d.sync += [
                    self._missed.eq(self._missed | Mux(only & ~stored, by, 0)),
                    self._proved.eq(self._proved | Mux(tells & named, by, 0)),
                ]
                with m.If(astray | over):
                    strays()
                with m.Elif(~stored):
                    with m.If(tells | ~lost):
                        advance()
                    with m.Else():
                        m.next = "Offer"
                        if self._paths > 1:
                            with m.If(only):
                                m.next = "Miss"
                with m.If(tells & named & (~latest.valid | before(latest.stamp, note.data.stamp))):
                    for n, one in enumerate(newest):
                        with m.If(note.data.path == n):
                            m.d.sync += [one.stamp.eq(note.data.stamp), one.valid.eq(1)]
            if self._paths > 1:
                with m.State("Miss"):  # known before the probe has its path
                    m.d.comb += notes.eq(1)
                    with m.If(does[Act.NOTED]):
                        m.d.sync += self._missed.eq(0)
                        m.next = "Offer"
            with m.State("Offer"):
                m.d.comb += self.repeat_valid.eq(~astray & ~over)
                with m.If(astray | over):
                    strays()
                with m.Elif(self.repeat_take):
                    m.next = "Leave"
            with m.State("Leave"):
                with m.If(self.resent_strobe):
                    m.d.comb += probed.eq(only)
                    # Whatever had its number by now is among those to be sent again.
                    with m.If(~fixed):
                        m.d.sync += [fixed.eq(1), until.eq(self._stamp)]
                    m.next = "Sent"
            with m.State("Sent"):
                m.d.comb += done.eq(1)
                with m.If(does[Act.REPEATED]):
                    advance()
            with m.State("Note"):
                m.d.comb += notes.eq((self._missed | self._proved).any() & ~over)
                with m.If(~notes | does[Act.NOTED]):
                    m.next = "Settle"
            with m.State("Settle"):
                m.d.comb += scan.skip.eq(1)  # SACKs of one session may never end: others are next
                m.next = "Choose"
        m.d.comb += self._walks.eq(~walk.ongoing("Choose") & mine)
        return {Act.REPEATED: (done, scan.at), Act.OFFERS: (looks, scan.at),
                Act.NOTED: (notes, scan.at)}
