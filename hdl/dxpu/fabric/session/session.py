"""Sessions that open by themselves, and end when the peer is gone or has forgotten them.

Ref: docs/explanation/sessions.md; docs/reference/fabric-spec.md (the scheme,
searched completely)
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import Counted
from dxpu.fabric.contexts import UNIT, Fetched, Owned, Sweep
from dxpu.fabric.opening.tags import TagPermutation
from dxpu.fabric.opening.types import Call, Called, Tell, Told
from dxpu.fabric.wire.format import FenceReason, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import FrameHeader, Greeting, Hello
from dxpu.memory import DisjointMemory
from dxpu.stream import connect

from .types import Mode, Said, SaidKind, Setting, SettingKind

__all__ = ["Mode", "Phase", "SessionKeeper", "connect_keeper"]


class Phase(enum.Enum, shape=3):
    """How far a session is."""

    #: Not to be opened by HELLO.
    OFF = 0
    #: Keeps still after reset or failure.
    QUIET = 1
    #: Waits for a HELLO.
    LISTEN = 2
    #: Waits for a fresh tag.
    ASK = 3
    #: Sends HELLO.
    HELLO = 4
    #: Has both tags; the peer has not shown that it has them.
    CONFIRM = 5
    OPEN = 6


class Candidate(data.Struct):
    """What the newest HELLO of a session said, ours or one that came."""

    nonce: 32
    #: Tag of who sent the HELLO, if the other end did.
    theirs: 16
    #: Boot counter of the peer.
    boot: 16


#: Polls without an answer after which a session has ended; as often a new session is confirmed.
POLLS = 4
#: A poll goes out when nothing was heard for ``wait << IDLE``.
IDLE = 3


class Act(enum.Enum, shape=3):
    """What happens to a session."""

    SAID = 0
    SET = 1
    LOOKED_AT = 2
    CALLED = 3
    FOUND = 4


class Comparisons(data.Struct):
    """Of the session that is acted upon, and of the HELLO or HELLO_ACK that came."""

    greeted: 1      #: it did
    sound: 1        #: it names a tag, and is of a peer that fits
    first: 1        #: it is a HELLO without a tag
    answer: 1       #: it is a HELLO_ACK that echoes our tag
    ours: 1         #: the nonce is that of the candidate
    theirs: 1       #: the tag is that of the candidate
    fresh: 1        #: the tag is not that of the session
    offered: 1      #: we offered a tag
    mine: 1         #: the session is not the software's, and has a peer
    late: 1         #: its time is over with this turn
    keyed: 1        #: the session is keyed


class Shown(data.Struct):
    """How far a session is; ``boot`` is the peer's in its last session, 0: there was none."""

    mode: Mode
    phase: Phase
    boot: 16
    rx_tag: 16
    tx_tag: 16


class SessionKeeper(wiring.Component):
    """Opens sessions by HELLO and HELLO_ACK, and watches them.

    The opening end sends HELLO with a new nonce and a fresh tag until it is answered, and repeats
    it after ``wait``, twice that and so on up to 16 times that, on one path after the other. The
    answering end offers a fresh tag for each nonce, and keeps the session that it has until a frame
    with the offered tag comes. Then it begins anew: what was open before is lost. The opening end
    takes a HELLO_ACK only for its newest nonce, begins anew, and asks for an acknowledgement with
    the tag it got; the session is open when a frame with its own tag comes. If none does it begins
    with another nonce.

    A session that is open and silent for eight times ``wait`` is polled, by an ACK that asks for
    another; after four polls, with doubling waits, it is lost. A session is also lost if it fails,
    when the peer opens another, and when software says so (``OPEN``). Then the tags are forgotten,
    and for ``quiet`` nothing is sent or answered, but for one FENCE with the last numbers, unless
    something else is just being said: so the peer need not find out by itself. A FENCE of the peer
    ends the session.

    Tags come from one counter for all sessions. It begins with ``boot``, turned by three bits, and
    counts up by one with each tag; zero and tags in use are left out. A nonce is ``boot`` and the
    tag. At most one tag is given out in ``PAUSE`` cycles, so none comes again for 65,536 times
    that; and none of the last seven boots', if each gave out less than 8192. So ``boot`` must not
    be put back by a reset. Until it is written no session is opened, and the first value counts.
    With ``has_keys`` the counter begins with 0 and goes through a permutation
    (:class:`~dxpu.fabric.opening.tags.TagPermutation`), so nobody can foretell a tag.

    Sessions with peers that are ``keyed`` are opened under a key, by an agent
    (:class:`~dxpu.fabric.opening.agent.OpeningAgent`): the keeper calls it with each opening frame
    that may matter, and when one is to be sent, and acts upon what it finds. A frame for which the
    agent has no time is dropped as stale. The waits are the same. An attempt begins anew after five
    HELLOs.
    The peer is told nothing but HELLO_DONE before a frame of the session came. Who is not keyed is
    opened in clear only.

    What is known of a session is a word in memory. One session is acted upon at a time, in three
    cycles, or more if it begins or ends. All are called in turn, to see what time it is and to say
    what is to be said; so times are late by up to a turn of :class:`~dxpu.fabric.contexts.Sweep`.

    Parameters
    ----------
    peers, streams : int
        Sessions: one for each stream of each peer; the latter a power of two. The session of a
        stream has the number ``peer * streams + stream``.
    paths : int
    pause : int
        Cycles from one tag to the next, at least 2.
    unit, pace : int
        Of :class:`~dxpu.fabric.contexts.Sweep`.
    block : bool
        State of the sessions is in block RAM (:class:`~dxpu.fabric.contexts.Owned`).
    has_keys : bool
        There may be keyed sessions.

    Members
    -------
    boot : 16
        Another value after each reset; 0: not known yet.
    wait : 16
        First wait for an answer, in units of 64 cycles; 0: for ever.
    quiet : 20
        In units of 64 cycles.
    unfit : 1
        The peer that ``hello`` is of cannot take what is sent here: it is not answered.
    valid : ``peers``
        Bit n: there is such a peer.
    setting : stream of :class:`~.types.Setting`
        Taken when it is done. Another mode ends the session. Tags count in mode REGISTERS only.
    said : stream of :class:`~.types.Said`
    header, hello : :class:`FrameHeader`, :class:`Hello`
        Of the frame that was a greeting, while ``said`` says so.
    asked, failed : number of a session out, 1 in
        Whether that session has failed, in the same cycle.
    sending, tx_tag, down : number of a session in, 16 out, 1 out
        Of that session, in the next cycle: the tag for frames that are sent, 0: there is none; it
        is not open, though it should be.
    receiving, rx_tag, candidate, greets : number of a session in, 16 out, 16 out, 1 out
        The same: the tag of frames that come, 0: none; the one that was offered to the peer and not
        used yet, 0: none; HELLO and HELLO_ACK are taken.
    open : stream of numbers of sessions
        The session begins or ends. Until this is taken its tags are the new ones, and its numbers
        still the old ones.
    opening : 1
        ``open`` is offered, or will be in the next cycle.
    ended, last_seq, last_next : 1, 24, 24
        Strobe, before or while ``open`` is taken: the numbers of the next frame that the session
        would have sent, and of the next one that would have come.
    told, about, lost : 1, number of a session, 1
        Strobe, in the cycle before ``open``: a session opens or is lost. ``lost``: if only for a
        moment.
    look, looked, seen, shown : 1 in, number of a session in, 1 out, :class:`Shown` out
        As long as ``look`` is high it is answered, each time by a pulse of ``seen``.
    o : stream of :class:`Greeting`
    keyed : ``peers``
        Bit n: sessions with that peer are keyed. It changes only while they are of mode REGISTERS,
        and in that mode they cannot be opened.
    call, finding, fresh_tag : streams of :class:`~dxpu.fabric.opening.types.Call` out,
        :class:`~dxpu.fabric.opening.types.Tell` in, 16
        To the agent and from it. ``call`` is offered for a cycle only; its ``peer`` is 0.
    tag_key, tag_key_valid : 32, 1
        Of the permutation: random, the same from when it is valid on. Until then no session is
        opened.
    first_seq, first_next : 24
        While ``opening``: the first numbers of the session, sent and received.
    stat_opened, stat_lost : 1
        Pulses: a session opened; one that was open is lost.
    stat_rebooted : 1
        Pulse: a peer came back with another boot counter.
    stat_stale : 1
        Pulse: a HELLO or HELLO_ACK that fits nothing; ignored.
    stat_unfit : 1
        Pulse: a HELLO or HELLO_ACK of a peer that is unfit, or has another security mode; ignored.
    """

    #: Cycles from one tag to the next.
    PAUSE = 1024

    def __init__(self, *, peers, streams, paths, pause=PAUSE, unit=UNIT, pace=4,
                 block=True, has_keys=False):
        if not isinstance(pause, int) or pause < 2:
            raise ValueError(f"pause must be an integer of at least 2, not {pause!r}")
        self._peers, self._streams, self._paths = peers, streams, paths
        self._pause, self._block, self._has_keys = pause, block, has_keys
        self._sessions = peers * streams
        self._sweep = Sweep(count=self._sessions, unit=unit, pace=pace)
        number = range(self._sessions)
        super().__init__({
            "boot": In(16),
            "wait": In(16, init=488),
            "quiet": In(20, init=195_313),
            "unfit": In(1),
            "valid": In(peers),
            "setting": In(stream.Signature(Setting)),
            "said": In(stream.Signature(Said)),
            "header": In(FrameHeader),
            "hello": In(Hello),
            "asked": Out(number),
            "failed": In(1),
            "sending": In(number),
            "tx_tag": Out(16),
            "down": Out(1),
            "receiving": In(number),
            "rx_tag": Out(16),
            "candidate": Out(16),
            "greets": Out(1),
            "open": Out(stream.Signature(number)),
            "opening": Out(1),
            "ended": In(1),
            "last_seq": In(24),
            "last_next": In(24),
            "told": Out(1),
            "about": Out(number),
            "lost": Out(1),
            "look": In(1),
            "looked": In(number),
            "seen": Out(1),
            "shown": Out(Shown),
            "o": Out(stream.Signature(Greeting)),
            **({
                "keyed": In(peers),
                "call": Out(stream.Signature(Call)),
                "finding": In(stream.Signature(Tell)),
                "fresh_tag": Out(16),
                "tag_key": In(32),
                "tag_key_valid": In(1),
                "first_seq": Out(24),
                "first_next": Out(24),
            } if has_keys else {}),
            "stat_opened": Out(Counted("Sessions opened by HELLO.")),
            "stat_lost": Out(Counted(
                "Open sessions that ended: failed, silent, replaced by the peer, or ended by "
                "software.")),
            "stat_rebooted": Out(Counted(
                "Sessions opened by a peer that has another boot counter than before.")),
            "stat_stale": Out(Counted(
                "HELLO and HELLO_ACK that fit nothing, old ones mostly; ignored.")),
            "stat_unfit": Out(Counted(
                "HELLO and HELLO_ACK of peers that cannot take what is sent here, ignored: their "
                "largest frame is less than fabric.packing_limit and 14 bytes, or than a TLP "
                "needs; or they do not take the split form, or have another security mode.")),
        })
        self._word = data.StructLayout({
            "mode": Mode, "phase": Phase, "rx": 16, "tx": 16, "offered": 16, "boot": 16,
            # What is to be said: HELLO or HELLO_ACK, and an ACK that asks for one; on which path.
            "hello": 1, "poll": 1, "way": range(max(2, paths)),
            # Attempts, and what is left of the time for this one; that begins when it is called.
            "tries": range(POLLS + 1), "left": range(1 << 20), "anew": 1,
        })
        #: A frame was handed to the agent; what is said is a matter of the agent.
        self._called_agent, self._secret = Signal(), Signal()
        #: The peer, or its security mode, does not fit.
        self._misfit = Signal()
        #: What a HELLO says and what is known, compared in the cycle before.
        self._is = Signal(Comparisons)
        #: What others look up of a session that sends, and of one that receives.
        self._sends = data.StructLayout({"tx": 16, "down": 1})
        self._receives = data.StructLayout({"rx": 16, "candidate": 16, "greets": 1})
        #: What is done, to which session, what that knows and is to know.
        self._session, self._acting, self._act = Signal(number), Signal(), Signal(Act)
        self._now, self._then = Signal(self._word), Signal(self._word)
        self._does = {act: Signal(name=f"does_{act.name.lower()}") for act in Act}
        self._candidate = Signal(Candidate)
        #: The session begins or ends; its phase and attempts from now on; the time begins anew.
        self._opens, self._restart = Signal(), Signal()
        self._phase, self._tries = Signal(Phase), Signal(range(POLLS + 1))
        #: Its time is over; it says something; that it gives up is said.
        self._over, self._says, self._fences = Signal(), Signal(), Signal()
        #: A FENCE is said when the last numbers are known.
        self._fencing = Signal()

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Owned(self._word, depth=self._sessions, block=self._block)
        m.submodules.sends = sends = Fetched(
            self._sends, depth=self._sessions, block=self._block)
        m.submodules.receives = receives = Fetched(self._receives, depth=self._sessions)
        m.submodules.candidates = candidates = DisjointMemory(
            shape=Candidate, depth=self._sessions, init=[],
            attrs={"ram_style": "block" if self._block else "distributed"})
        self._choose(m, words)
        self._fresh(m)
        self._remember(m, words, candidates.write_port(), candidates.read_port())
        self._time(m)
        self._happens(m)
        self._speak(m)

        then, sending, receiving = self._then, sends.word, receives.word
        for part in (sends, receives):
            m.d.comb += [part.put.eq(words.put), part.where.eq(words.session)]
        m.d.comb += [
            sends.new.tx.eq(then.tx),
            sends.new.down.eq(self._is_down(then.mode, then.phase)),
            receives.new.rx.eq(then.rx),
            receives.new.candidate.eq(
                Mux((then.mode == Mode.ANSWERS) & ~self._is.keyed, then.offered, 0)),
            receives.new.greets.eq((then.phase == Phase.HELLO) | self._answers(then)
                                   | self._is.keyed & (then.phase == Phase.CONFIRM)),
            sends.at.eq(self.sending), self.tx_tag.eq(sending.tx), self.down.eq(sending.down),
            receives.at.eq(self.receiving), self.rx_tag.eq(receiving.rx),
            self.candidate.eq(receiving.candidate), self.greets.eq(receiving.greets),
            self.asked.eq(self._session),
            self.seen.eq(self._does[Act.LOOKED_AT]),
            self.shown.mode.eq(self._now.mode), self.shown.phase.eq(self._now.phase),
            self.shown.boot.eq(self._now.boot),
            self.shown.rx_tag.eq(self._now.rx), self.shown.tx_tag.eq(self._now.tx),
        ]
        return m

    @staticmethod
    def _is_down(mode, phase):
        return (mode != Mode.REGISTERS) & (phase != Phase.OPEN)

    @staticmethod
    def _answers(word):
        """Whether the session answers HELLOs."""
        return (word.mode == Mode.ANSWERS) & (
            (word.phase == Phase.LISTEN) | (word.phase == Phase.OPEN))

    def _choose(self, m, words):
        """Who is acted upon next."""
        m.submodules.sweep = sweep = self._sweep
        m.d.comb += self._session.eq(words.session)
        asks = {Act.SAID: (self.said.valid, self.said.payload.session),
                **({Act.FOUND: (self.finding.valid, self.finding.payload.session)}
                   if self._has_keys else {}),
                Act.SET: (self.setting.valid, self.setting.payload.session),
                Act.LOOKED_AT: (self.look, self.looked)}
        m.d.comb += words.pick.eq(sweep.session)
        # The greeting is compared meanwhile: it stays until it is answered.
        with m.FSM(name="keep"):
            with m.State("Choose"):
                m.d.sync += self._act.eq(Act.CALLED)
                with m.If(words.ready):
                    m.d.comb += words.picks.eq(sweep.valid)
                    with m.If(sweep.valid):
                        m.next = "Act"
                    for n, (act, (wish, session)) in enumerate(asks.items()):
                        with (m.If if n == 0 else m.Elif)(wish):
                            m.d.comb += [words.pick.eq(session), words.picks.eq(1)]
                            m.d.sync += self._act.eq(act)
                            m.next = "Act"
            with m.State("Act"):
                with m.If(self._acting):
                    m.next = "Choose"
                with m.If(self._opens):
                    m.next = "Tell"
            with m.State("Tell"):
                m.d.comb += self.opening.eq(1)
                m.next = "Open"
            with m.State("Open"):
                m.d.comb += [self.opening.eq(1), self.open.valid.eq(1)]
                with m.If(self.open.ready):
                    m.next = "Choose"
        m.d.sync += [does.eq(words.loads & (self._act == act)) for act, does in self._does.items()]
        m.d.comb += [
            self._acting.eq(words.acts),
            self._now.eq(words.word), words.put.eq(self._acting), words.new.eq(self._then),
            self.open.payload.eq(self._session),
            self.said.ready.eq(self._does[Act.SAID]),
            self.setting.ready.eq(self._does[Act.SET]),
            sweep.done.eq(self._does[Act.CALLED]),
        ]

    def _fresh(self, m):
        """Tags: ``self._tag`` may be taken while ``self._ready``, by the strobe ``self._takes``."""
        count, ready, takes = Signal(16), Signal(), Signal()
        tag, known = (Signal(16), Signal()) if self._has_keys else (count, Const(1))
        self._tag, self._ready, self._takes = tag, ready, takes
        self._booted = booted = Signal(16)
        pause, asked = Signal(range(self._pause)), Signal(range(self._sessions + 1))
        calls = self._does[Act.CALLED]
        if self._has_keys:
            m.submodules.tags = tags = TagPermutation()
            m.d.comb += [
                tags.tag_key.eq(self.tag_key), tags.tag_key_valid.eq(self.tag_key_valid),
                tags.drawn.eq(count), tag.eq(tags.image), known.eq(tags.done),
            ]
            first, boots = 0, self.tag_key_valid
        else:
            first, boots = Cat(self.boot[3:], self.boot[:3]), 1
        # All sessions have been asked whether they use it.
        m.d.comb += ready.eq((booted != 0) & (pause == 0) & (tag != 0) & known
                             & (asked == self._sessions))
        with m.If(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.If(booted == 0):
            with m.If(boots):
                m.d.sync += [booted.eq(self.boot), count.eq(first)]
        with m.Elif(takes):
            m.d.sync += [count.eq(count + 1), asked.eq(0), pause.eq(self._pause - 1)]
        with m.Elif(calls & known & (asked != self._sessions)):
            m.d.sync += asked.eq(asked + 1)
            with m.If((self._now.rx == tag) | (tag == 0)):
                m.d.sync += [count.eq(count + 1), asked.eq(0)]

    def _remember(self, m, words, write, read):
        """The candidate of the session; a fresh tag is for a HELLO of ours, or for one that
        came."""
        hello, new = self.hello, write.data
        m.d.comb += [
            read.addr.eq(words.pick), read.en.eq(words.picks),
            write.addr.eq(self._session), write.en.eq(self._takes),
            new.boot.eq(hello.boot),
        ]
        if self._has_keys:
            with m.If(self._does[Act.FOUND]):
                m.d.comb += new.boot.eq(self.finding.payload.boot)
        with m.If(words.loads):
            m.d.sync += self._candidate.eq(read.data)
        self._compare(m, words, read.data)
        with m.If(self._does[Act.SAID]):
            m.d.comb += [new.nonce.eq(hello.nonce), new.theirs.eq(hello.offered)]
        with m.Else():
            m.d.comb += new.nonce.eq(Cat(self._tag, self._booted))

    def _compare(self, m, words, candidate):
        """Compare what comes out of the memories, so that it is known when they are acted upon."""
        said, hello, header, coming = self.said.payload, self.hello, self.header, words.next_word
        peer, check = words.session >> exact_log2(self._streams), self._is
        m.d.sync += [
            check.greeted.eq(words.loads & (self._act == Act.SAID)
                             & (said.kind == SaidKind.GREETED)),
            check.sound.eq((hello.offered != 0) & ~self.unfit
                           & (hello.security == SecurityMode.NONE)),
            check.keyed.eq(self.keyed.bit_select(peer, 1) if self._has_keys else 0),
            check.first.eq((header.type == FrameType.HELLO) & (header.tag == 0)),
            check.answer.eq((header.type == FrameType.HELLO_ACK)
                            & (header.tag == coming.offered) & (hello.echoed == coming.offered)),
            check.ours.eq(hello.nonce == candidate.nonce),
            check.theirs.eq(hello.offered == candidate.theirs),
            check.fresh.eq(hello.offered != coming.tx),
            check.offered.eq(coming.offered != 0),
            check.mine.eq(self.valid.bit_select(peer, 1) & (coming.mode != Mode.REGISTERS)
                          & (self._booted != 0)),
            check.late.eq(~coming.anew & (coming.left <= self._sweep.step)),
        ]

    def _time(self, m):
        """What time it is for the session, and how much it has when that begins anew."""
        now, step = self._now, self._sweep.step
        value, phase, tries = Signal(20), now.phase, now.tries
        runs, ends = Signal(), Signal()  # ``ends``: waits do, ever
        m.d.sync += ends.eq(self.wait != 0)
        m.d.comb += [
            runs.eq(self._does[Act.CALLED] & (ends | (phase == Phase.QUIET))),
            self._over.eq(runs & self._is.late),
        ]
        # A session that is open waits long for the first word, and polls like one that asks.
        with m.If(phase == Phase.QUIET):
            m.d.comb += value.eq(self.quiet)
        with m.Elif(phase != Phase.OPEN):
            m.d.comb += value.eq(self.wait << tries)
        with m.Elif(tries == 0):
            m.d.comb += value.eq(self.wait << IDLE)
        with m.Else():
            m.d.comb += value.eq(self.wait << (tries - 1)[:2])
        self._left = Mux(~runs, now.left, Mux(now.anew, value, Mux(self._over, 0, now.left - step)))
        self._anew = self._restart | now.anew & ~runs

    def _happens(self, m):
        """What becomes of the session."""
        now, then, does = self._now, self._then, self._does
        setting = self.setting.payload
        mine, opens, ends = self._is.mine, Signal(), Signal()
        self._begins = Signal()
        m.d.comb += [
            opens.eq(now.mode == Mode.OPENS),
            then.eq(now), then.phase.eq(self._phase), then.tries.eq(self._tries),
            then.left.eq(self._left), then.anew.eq(self._anew),
            self._phase.eq(now.phase), self._tries.eq(now.tries),
        ]
        with m.If(does[Act.CALLED]):
            self._called(m, mine, opens, ends)
        with m.If(does[Act.SAID]):
            self._is_said(m, opens, ends)
        if self._has_keys:
            with m.If(does[Act.FOUND]):
                self._is_found(m, mine, opens)
            self._call(m, opens)
            found, keyed = self.finding.payload, does[Act.FOUND]
            with m.If(self._acting):
                m.d.sync += [self.first_seq.eq(Mux(keyed, found.seq, 0)),
                             self.first_next.eq(Mux(keyed, found.next, 0))]
        # Software.
        with m.If(does[Act.SET]):
            with m.If(setting.kind == SettingKind.MODE):
                m.d.comb += [then.mode.eq(setting.mode), ends.eq(setting.mode != now.mode)]
            with m.Elif(setting.kind == SettingKind.OPEN):
                m.d.comb += [ends.eq(now.phase != Phase.OFF),
                             self._opens.eq((now.mode == Mode.REGISTERS) & ~self._is.keyed)]
            with m.Elif((now.mode == Mode.REGISTERS) & ~self._is.keyed):
                m.d.comb += [then.rx.eq(setting.rx_tag), then.tx.eq(setting.tx_tag)]
        with m.If(ends):
            m.d.comb += [
                self._opens.eq(1), self._restart.eq(1), self.stat_lost.eq(now.phase == Phase.OPEN),
                then.rx.eq(0), then.tx.eq(0), then.offered.eq(0), then.hello.eq(0),
                then.poll.eq(0),
                self._phase.eq(Mux(mine & ~(does[Act.SET] & (setting.kind == SettingKind.MODE)),
                                   Phase.QUIET, Phase.OFF)),
            ]
        m.d.comb += self._fences.eq(ends & ~does[Act.SAID] & (now.tx != 0) & ~self.o.valid & (
            (now.phase == Phase.OPEN) | (now.phase == Phase.CONFIRM)))
        # Also for a moment when software begins it anew: what was under way is gone.
        is_down = self._is_down(then.mode, self._phase)
        m.d.sync += [
            self.told.eq(self._acting & (self._opens | (
                is_down != self._is_down(now.mode, now.phase)))),
            self.about.eq(self._session),
            self.lost.eq(self._opens | is_down),
        ]

    def _again(self, m):
        """Another attempt, on the next path."""
        now = self._now
        m.d.comb += [
            self._restart.eq(1), self._tries.eq(Mux(now.tries == POLLS, POLLS, now.tries + 1)),
            self._then.way.eq(Mux(now.way == self._paths - 1, 0, now.way + 1)),
        ]

    def _called(self, m, mine, opens, ends):
        """What the session does by itself."""
        now, then = self._now, self._then
        up = (now.phase == Phase.OPEN) | (now.phase == Phase.CONFIRM)
        last = now.tries == POLLS
        with m.If(self._says):
            m.d.comb += [then.hello.eq(0), then.poll.eq(now.poll & now.hello)]
        with m.If(self._over & ((now.phase == Phase.HELLO) | up & ~last)):
            self._again(m)
            m.d.comb += [then.hello.eq(now.phase == Phase.HELLO), then.poll.eq(up)]
        with m.Switch(now.phase):
            with m.Case(Phase.OFF):
                with m.If(mine):
                    m.d.comb += [self._phase.eq(Phase.QUIET), self._restart.eq(1)]
            with m.Case(Phase.QUIET):
                with m.If(self._over | (self.quiet == 0)):
                    m.d.comb += self._phase.eq(Mux(opens, Phase.ASK, Phase.LISTEN))
            with m.Case(Phase.ASK):
                with m.If(self._ready):
                    m.d.comb += [
                        self._takes.eq(1), self._restart.eq(1), self._phase.eq(Phase.HELLO),
                        self._tries.eq(0), then.offered.eq(self._tag), then.hello.eq(1),
                    ]
            with m.Case(Phase.HELLO):
                with m.If(self._is.keyed & self._over & last):
                    m.d.comb += [self._phase.eq(Phase.ASK), then.hello.eq(0)]
            with m.Case(Phase.CONFIRM):
                with m.If(self._over & last):
                    m.d.comb += [self._opens.eq(1), self._phase.eq(Phase.ASK),
                                 then.rx.eq(0), then.tx.eq(0)]
        with m.If((now.phase != Phase.OFF)
                  & (~mine | (now.phase == Phase.OPEN) & self._over & last | up & self.failed)):
            m.d.comb += ends.eq(1)

    def _is_said(self, m, opens, ends):
        """A frame of the session, or for it, took effect."""
        now, then = self._now, self._then
        what = self.said.payload.kind
        fresh = self._greeted(m, what, opens)
        confirmed = Signal()
        m.d.comb += [
            confirmed.eq((what == SaidKind.CONFIRMED) & self._answers(now)),
            self._begins.eq(fresh | confirmed),
        ]
        with m.If(what == SaidKind.HEARD):
            with m.If((now.phase == Phase.CONFIRM) | (now.phase == Phase.OPEN)):
                m.d.comb += [self._phase.eq(Phase.OPEN), self._tries.eq(0), self._restart.eq(1),
                             self.stat_opened.eq(now.phase == Phase.CONFIRM)]
                # The agent is told.
                with m.If(self._is.keyed & (now.phase == Phase.CONFIRM)):
                    m.d.comb += [then.hello.eq(opens), then.poll.eq(0)]
        with m.If((what == SaidKind.FENCED)
                  & ((now.phase == Phase.CONFIRM) | (now.phase == Phase.OPEN))):
            m.d.comb += ends.eq(1)
        with m.If(self._begins):
            # With the tags that both ends know.
            boot = Mux(fresh, self.hello.boot, self._candidate.boot)
            m.d.comb += [
                self._opens.eq(1), self._restart.eq(1), self._tries.eq(0),
                self._phase.eq(Mux(fresh, Phase.CONFIRM, Phase.OPEN)),
                then.rx.eq(now.offered),
                then.tx.eq(Mux(fresh, self.hello.offered, self._candidate.theirs)),
                then.offered.eq(0), then.hello.eq(0), then.poll.eq(1), then.boot.eq(boot),
                self.stat_rebooted.eq((now.boot != 0) & (now.boot != boot)),
                self.stat_opened.eq(confirmed),
                self.stat_lost.eq(confirmed & (now.phase == Phase.OPEN)),
            ]

    def _greeted(self, m, what, opens):
        """Answers a HELLO; returns "a HELLO_ACK is the answer to our HELLO"."""
        now, then, hello, header = self._now, self._then, self.hello, self.header
        fits, known, check = Signal(), Signal(), self._is
        fresh, back = Signal(), header.way_back(self._paths)
        unfit = self.unfit | (hello.security != Mux(
            check.keyed, SecurityMode.KEYED, SecurityMode.NONE))
        m.d.comb += [
            self.stat_unfit.eq(check.greeted & unfit), self._misfit.eq(unfit),
            fits.eq(check.greeted & check.sound & ~check.keyed),
            fresh.eq(fits & opens & (now.phase == Phase.HELLO) & check.answer & check.ours),
            known.eq(check.offered & check.ours & check.theirs),
            self.stat_stale.eq(check.greeted & ~fresh & ~unfit & ~self._called_agent),
        ]
        with m.If(fits & self._answers(now) & check.first):
            with m.If(known):
                m.d.comb += [self.stat_stale.eq(0), then.hello.eq(1), then.way.eq(back)]
            # One of the session that is open comes late.
            with m.Elif(self._ready & ((now.phase != Phase.OPEN) | check.fresh)):
                m.d.comb += [self.stat_stale.eq(0), self._takes.eq(1), then.hello.eq(1),
                             then.way.eq(back), then.offered.eq(self._tag)]
        with m.If(fresh):
            m.d.comb += then.way.eq(back)
        return fresh

    def _speak(self, m):
        """Say what is to be said by the session that is called."""
        o, now, candidate = self.o, self._now, self._candidate
        plain = Signal()
        m.d.comb += [
            plain.eq(self._does[Act.CALLED] & ~o.valid & Mux(
                self._is.keyed, now.poll & ~now.hello & (now.phase == Phase.OPEN),
                now.hello | now.poll)),
            self._says.eq(plain | self._secret),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(plain):
            m.d.sync += [
                o.valid.eq(1), o.payload.seq.eq(0), o.payload.ack.eq(0),
                o.payload.type.eq(Mux(now.hello, Mux(now.mode == Mode.OPENS, FrameType.HELLO,
                                                     FrameType.HELLO_ACK), FrameType.ACK)),
                o.payload.session.eq(self._session),
                o.payload.path.eq(now.way),
                o.payload.tag.eq(candidate.theirs),
                o.payload.nonce.eq(candidate.nonce),
                o.payload.offered.eq(now.offered),
                o.payload.echoed.eq(candidate.theirs),
            ]
        with m.If(self._fences):
            m.d.sync += [
                self._fencing.eq(1),
                o.payload.type.eq(FrameType.FENCE), o.payload.tag.eq(now.tx),
                o.payload.session.eq(self._session), o.payload.path.eq(now.way),
                o.payload.reason.eq(Mux(self._does[Act.SET], FenceReason.MANAGED,
                                        FenceReason.SESSION_LOST)),
            ]
        with m.If(self.ended & self._fencing):
            m.d.sync += [self._fencing.eq(0), o.valid.eq(1), o.payload.seq.eq(self.last_seq),
                         o.payload.ack.eq(self.last_next)]

    def _call(self, m, opens):
        """Calls of the agent: a frame came that may matter, or one is to be sent."""
        now, check, header, call = self._now, self._is, self.header, self.call.payload
        comes, sends, answers = Signal(), Signal(), self._answers(now)
        confirms = opens & (now.phase == Phase.CONFIRM)
        came = {FrameType.HELLO: Called.HELLO, FrameType.HELLO_ACK: Called.HELLO_ACK,
                FrameType.HELLO_DONE: Called.HELLO_DONE}
        say = {Called.SEND_HELLO: opens & (now.phase == Phase.HELLO) & now.hello,
               Called.SEND_HELLO_ACK: answers & now.hello & (now.offered != 0),
               Called.SEND_HELLO_DONE: confirms & now.poll,
               Called.HEARD: opens & (now.phase == Phase.OPEN) & now.hello}
        m.d.comb += [
            comes.eq(check.greeted & check.keyed & ~self._misfit & self._does[Act.SAID] & Mux(
                header.type == FrameType.HELLO_ACK,
                opens & (now.phase == Phase.HELLO) | confirms, answers)),
            sends.eq(self._does[Act.CALLED] & check.keyed & Cat(say.values()).any()),
            self.call.valid.eq(comes | sends),
            self._called_agent.eq(comes & self.call.ready),
            self._secret.eq(sends & self.call.ready),
            call.session.eq(self._session), call.tag.eq(header.tag), call.confirms.eq(confirms),
            call.offered.eq(Mux(confirms, now.rx, now.offered)),
            call.boot.eq(self.hello.boot),
            call.path.eq(Mux(comes, header.way_back(self._paths), now.way)),
        ]
        for kind, wanted in say.items():
            with m.If(sends & wanted):
                m.d.comb += call.kind.eq(kind)
        for kind, called in came.items():
            with m.If(comes & (header.type == kind)):
                m.d.comb += call.kind.eq(called)

    def _is_found(self, m, mine, opens):
        """The agent found something."""
        now, then, found, candidate = self._now, self._then, self.finding.payload, self._candidate
        fits, answers, begins = Signal(), Signal(), Signal()
        m.d.comb += [
            self.finding.ready.eq(1),
            fits.eq(mine & (now.offered != 0) & (found.offered == now.offered)),
            answers.eq(mine & self._answers(now)),
        ]
        with m.Switch(found.kind):
            with m.Case(Told.WANTS):
                with m.If(answers & self._ready):
                    m.d.comb += [self._takes.eq(1), self.fresh_tag.eq(self._tag),
                                 then.offered.eq(self._tag), then.hello.eq(0)]
            with m.Case(Told.OFFERS):
                with m.If(answers & fits):
                    m.d.comb += [then.hello.eq(1), then.way.eq(found.path)]
            with m.Case(Told.AGAIN):
                with m.If(answers & fits):
                    m.d.comb += [then.hello.eq(1), then.way.eq(found.path)]
                with m.If(opens & (now.phase == Phase.CONFIRM) & (now.rx == found.offered)):
                    m.d.comb += [then.poll.eq(1), then.way.eq(found.path)]
            with m.Case(Told.REPEATS):
                with m.If(answers & (now.phase == Phase.OPEN)):
                    m.d.comb += [then.poll.eq(1), then.way.eq(found.path)]
            with m.Case(Told.BEGINS):
                m.d.comb += begins.eq(fits & (answers | opens & (now.phase == Phase.HELLO)))
        with m.If(begins):
            boot = Mux(opens, found.boot, candidate.boot)
            m.d.comb += [
                self._opens.eq(1), self._restart.eq(1), self._tries.eq(0),
                self._phase.eq(Mux(opens, Phase.CONFIRM, Phase.OPEN)),
                then.rx.eq(now.offered), then.tx.eq(found.theirs), then.way.eq(found.path),
                then.offered.eq(0), then.hello.eq(0), then.poll.eq(1), then.boot.eq(boot),
                self.stat_rebooted.eq((now.boot != 0) & (now.boot != boot)),
                self.stat_opened.eq(answers),
                self.stat_lost.eq(answers & (now.phase == Phase.OPEN)),
            ]


def connect_keeper(m, keeper, link, retransmitter, header, hello):
    """Connect a keeper, a link, and whatever has the members of a retransmitter that tell of
    sessions; the depacketizer has committed ``header``, and ``hello``."""
    done = Signal()
    m.d.comb += [
        # First the link, where nothing is under way after that; until all have opened the session
        # nobody looks at it.
        link.open.valid.eq(keeper.open.valid & ~done),
        link.open.payload.eq(keeper.open.payload),
        link.hold.eq(keeper.opening),
        keeper.ended.eq(link.open.valid & link.open.ready),
        keeper.last_seq.eq(link.last_seq), keeper.last_next.eq(link.last_next),
        retransmitter.open.valid.eq(keeper.open.valid & done),
        retransmitter.open.payload.eq(keeper.open.payload),
        keeper.open.ready.eq(retransmitter.open.valid & retransmitter.open.ready),
        keeper.sending.eq(link.sending_next), keeper.receiving.eq(link.receiving_next),
        *(getattr(link, name).eq(getattr(keeper, name))
          for name in ("tx_tag", "down", "rx_tag", "candidate", "greets", "told")),
        link.told_session.eq(keeper.about), link.told_lost.eq(keeper.lost),
        keeper.valid.eq(Cat(peer.valid for peer in link.peers)),
        keeper.header.eq(header),
        keeper.hello.eq(hello),
        *([link.first_seq.eq(keeper.first_seq), link.first_next.eq(keeper.first_next)]
          if hasattr(keeper, "first_seq") else []),
        retransmitter.sending.eq(link.sending), link.about.eq(retransmitter.about),
        retransmitter.receiving.eq(link.receiving),
        link.unacked.eq(retransmitter.unacked), link.given_up.eq(retransmitter.given_up),
        retransmitter.asked.eq(keeper.asked), keeper.failed.eq(retransmitter.failed),
    ]
    connect(m, link.said, keeper.said)
    connect(m, link.acked, retransmitter.acked)
    with m.If(link.open.valid & link.open.ready):
        m.d.sync += done.eq(1)
    with m.Elif(keeper.open.ready):
        m.d.sync += done.eq(0)
