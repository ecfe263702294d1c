"""Sessions that open by themselves, and end when the peer is gone or has forgotten them.

Ref: docs/architecture.md, "Sessions"; docs/fabric-spec.md (the scheme, searched completely)
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..priority import encode, lowest_bit, round_robin
from .format import FrameType, SecurityMode
from .timers import Timers
from .types import FrameHeader, Greeting, Hello, Session

__all__ = ["Mode", "Phase", "SessionKeeper", "connect_keeper"]


class Mode(enum.Enum, shape=2):
    """Who opens a session."""

    #: Nobody: tags and ``open`` are written by software, at both ends.
    REGISTERS = 0
    #: This end sends HELLO; a host.
    OPENS = 1
    #: This end answers; a box.
    ANSWERS = 2


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
    #: Fresh tag of this end.
    offered: 16
    #: Boot counter of the peer.
    boot: 16


#: Polls without an answer after which a session has ended; as often a new session is confirmed.
POLLS = 4
#: A poll goes out when nothing was heard for ``wait << IDLE``.
IDLE = 3


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
    when the peer opens another, and when software says so (``reopen``). Then the tags are
    forgotten, and for ``quiet`` nothing is sent or answered.

    Tags come from one counter for all sessions. It begins with ``boot``, turned by three bits, and
    counts up by one with each tag; zero and tags in use are left out. A nonce is ``boot`` and the
    tag. At most one tag is given out in ``PAUSE`` cycles, so none comes again for 65,536 times
    that; and none of the last seven boots', if each gave out less than 8192. So ``boot`` must not
    be put back by a reset. Until it is written no session is opened, and the first value counts.

    Parameters
    ----------
    sessions, paths : int
    pause : int
        Cycles from one tag to the next, at least 2.

    Members
    -------
    boot : 16
        Another value after each reset; 0: not known yet.
    wait : 16
        First wait for an answer, in units of 64 cycles; 0: for ever.
    quiet : 20
        In units of 64 cycles.
    config : array of :class:`~dxpu.fabric.types.Session`
        As the registers set them up. The tags count in mode REGISTERS only.
    reopen : ``sessions``
        Strobes.
    failed : ``sessions``
        Of the :class:`~dxpu.fabric.retransmit.Retransmitter`.
    heard, greeted, confirmed, of : ``sessions``, number of a session
        Of the :class:`~dxpu.fabric.link.Link`.
    header, hello : :class:`FrameHeader`, :class:`Hello`
        Of the frame that is ``greeted``.
    sessions, open, greets, candidate, down
        For the link; ``open`` is for the retransmitter, too.
    o : stream of :class:`Greeting`
    phase : array of :class:`Phase`
    peer_boot : array of 16-bit values
        Boot counter of each peer in its last session; 0: there was none.
    stat_opened, stat_lost : 1
        Pulses: a session opened; one that was open is lost.
    stat_rebooted : 1
        Pulse: a peer came back with another boot counter.
    stat_stale : 1
        Pulse: a HELLO or HELLO_ACK that fits nothing; ignored.
    """

    #: Cycles from one tag to the next.
    PAUSE = 1024

    def __init__(self, *, sessions, paths, pause=PAUSE):
        if not isinstance(pause, int) or pause < 2:
            raise ValueError(f"pause must be an integer of at least 2, not {pause!r}")
        self._sessions, self._paths, self._pause = sessions, paths, pause
        super().__init__({
            "boot": In(16),
            "wait": In(16, init=488),
            "quiet": In(20, init=195_313),
            "config": In(data.ArrayLayout(Session, sessions)),
            "reopen": In(sessions),
            "failed": In(sessions),
            "heard": In(sessions),
            "greeted": In(sessions),
            "confirmed": In(sessions),
            "of": In(range(sessions)),
            "header": In(FrameHeader),
            "hello": In(Hello),
            "sessions": Out(data.ArrayLayout(Session, sessions)),
            "open": Out(sessions),
            "greets": Out(sessions),
            "candidate": Out(data.ArrayLayout(16, sessions)),
            "down": Out(sessions),
            "o": Out(stream.Signature(Greeting)),
            "phase": Out(data.ArrayLayout(Phase, sessions)),
            "peer_boot": Out(data.ArrayLayout(16, sessions)),
            "stat_opened": Out(1),
            "stat_lost": Out(1),
            "stat_rebooted": Out(1),
            "stat_stale": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        # Strobes: a session opened, was lost, its peer has rebooted, it was greeted in vain.
        self._events = {name: Signal(self._sessions, name=name)
                        for name in ("opened", "lost", "rebooted", "stale")}
        m.d.sync += [getattr(self, f"stat_{k}").eq(v.any()) for k, v in self._events.items()]
        # What is to be said: HELLO or HELLO_ACK, and an ACK that asks for one.
        self._hello, self._poll = Signal(self._sessions), Signal(self._sessions)
        # By session: from where to count the time, the next path, and how often it was tried.
        self._start = Signal(self._sessions)
        self._way = [Signal(4, name=f"way{n}") for n in range(self._sessions)]
        self._tries = [Signal(range(POLLS + 1), name=f"tries{n}") for n in range(self._sessions)]
        self._over = Signal(self._sessions)
        self._fresh(m)
        m.submodules.candidates = candidates = Memory(
            shape=Candidate, depth=self._sessions, init=[])
        self._remember(m, candidates.write_port())
        self._meet(m, candidates.read_port(domain="comb"))
        self._speak(m, candidates.read_port(domain="comb"))
        self._watch(m)
        for n in range(self._sessions):
            self._session(m, n)
        return m

    def _watch(self, m):
        """Timers of all sessions."""
        m.submodules.timers = timers = Timers(count=self._sessions, width=len(self.quiet))
        tries, phase = Signal(range(POLLS + 1)), Signal(Phase)
        m.d.comb += [
            tries.eq(Array(self._tries)[timers.turn]),
            phase.eq(self.phase[timers.turn]),
            timers.start.eq(self._start),
            timers.runs.eq((self.wait != 0) | (phase == Phase.QUIET)),
            self._over.eq(Mux(timers.over, timers.looks, 0)),
        ]
        # A session that is open waits long for the first word, and polls like one that asks.
        with m.If(phase == Phase.QUIET):
            m.d.comb += timers.value.eq(self.quiet)
        with m.Elif(phase != Phase.OPEN):
            m.d.comb += timers.value.eq(self.wait << tries)
        with m.Elif(tries == 0):
            m.d.comb += timers.value.eq(self.wait << IDLE)
        with m.Else():
            m.d.comb += timers.value.eq(self.wait << (tries - 1)[:2])

    def _remember(self, m, port):
        """A fresh tag is for a HELLO of ours, or for one that came."""
        hello, candidate = self.hello, port.data
        m.d.comb += [
            port.en.eq(self._takes.any()),
            candidate.offered.eq(self._tag),
            candidate.boot.eq(hello.boot),
        ]
        with m.If(self.greeted.any()):
            m.d.comb += [port.addr.eq(self.of), candidate.nonce.eq(hello.nonce),
                         candidate.theirs.eq(hello.offered)]
        with m.Else():
            m.d.comb += [port.addr.eq(encode(self._turn)),
                         candidate.nonce.eq(Cat(self._tag, self._booted))]

    def _meet(self, m, port):
        """Compare what came with the candidate of its session."""
        hello, header = self.hello, self.header
        self._candidate = candidate = port.data
        self._answered, self._same = Signal(), Signal()
        m.d.comb += [
            port.addr.eq(self.of),
            self._answered.eq((header.type == FrameType.HELLO_ACK)
                              & (header.tag == candidate.offered)
                              & (hello.echoed == candidate.offered)
                              & (hello.nonce == candidate.nonce)),
            self._same.eq((candidate.nonce == hello.nonce) & (candidate.theirs == hello.offered)),
        ]

    def _fresh(self, m):
        """Tags: ``self._tag`` may be taken while ``self._ready``, by strobes in ``self._takes``;
        who ``asks`` waits for its ``turn``."""
        many = self._sessions
        self._turn = Signal(many)
        self._tag, self._ready = tag, ready = Signal(16), Signal()
        self._booted = booted = Signal(16)
        self._takes, self._asks = takes, asks = Signal(many), Signal(many)
        pause = Signal(range(self._pause))
        used = Cat(s.rx_tag == tag for s in self.sessions).any()
        m.d.comb += ready.eq((booted != 0) & (pause == 0) & (tag != 0) & ~used)
        # A HELLO that came cannot wait.
        m.d.comb += self._turn.eq(Mux(ready & ~self.greeted.any(), lowest_bit(asks), 0))
        with m.If(booted == 0):
            m.d.sync += [booted.eq(self.boot), tag.eq(Cat(self.boot[3:], self.boot[:3]))]
        with m.Elif(takes.any()):
            m.d.sync += [tag.eq(tag + 1), pause.eq(self._pause - 1)]
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(~ready):
            m.d.sync += tag.eq(tag + 1)

    def _session(self, m, n):
        """Session ``n``."""
        config, session, phase = self.config[n], self.sessions[n], self.phase[n]
        events = self._events
        hello, header = self.hello, self.header
        mine, opens = Signal(name=f"mine{n}"), Signal(name=f"opens{n}")
        m.d.comb += [
            mine.eq(config.valid & (config.mode != Mode.REGISTERS) & (self._booted != 0)),
            opens.eq(config.mode == Mode.OPENS),
        ]
        # Tags of the session, and of the candidate.
        rx, tx, offered = (Signal(16, name=f"{k}{n}") for k in ("rx", "tx", "offered"))
        path, tries, over, restart = self._way[n], self._tries[n], self._over[n], self._start[n]
        by_hello = config.mode != Mode.REGISTERS
        m.d.comb += [
            session.eq(config),
            session.mode.eq(config.mode),
            self.greets[n].eq((phase == Phase.HELLO) | self._answers(n)),
            self.candidate[n].eq(Mux(opens, 0, offered)),
            self._asks[n].eq(phase == Phase.ASK),
        ]
        with m.If(by_hello):
            m.d.comb += [session.tx_tag.eq(tx), session.rx_tag.eq(rx)]
        with m.Else():
            m.d.comb += self.open[n].eq(self.reopen[n])

        def again():
            """Another attempt, on the next path."""
            m.d.comb += restart.eq(1)
            m.d.sync += [tries.eq(Mux(tries == POLLS, POLLS, tries + 1)),
                         path.eq(Mux(path == self._paths - 1, 0, path + 1))]

        def anew():
            """The first attempt."""
            m.d.comb += restart.eq(1)
            m.d.sync += tries.eq(0)

        def begin(tx_tag, boot_counter):
            """The session begins, with the tags that both ends know."""
            m.d.comb += self.open[n].eq(1)
            m.d.sync += [
                rx.eq(offered), tx.eq(tx_tag), offered.eq(0), self._poll[n].eq(1),
                self.peer_boot[n].eq(boot_counter),
            ]
            anew()
            m.d.comb += events["rebooted"][n].eq(
                (self.peer_boot[n] != 0) & (self.peer_boot[n] != boot_counter))

        fresh = self._greeting_fits(m, n, opens, tx, offered)
        with m.Switch(phase):
            with m.Case(Phase.OFF):
                with m.If(mine):
                    m.d.comb += restart.eq(1)
                    m.d.sync += phase.eq(Phase.QUIET)
            with m.Case(Phase.QUIET):
                with m.If(over | (self.quiet == 0)):
                    m.d.sync += phase.eq(Mux(opens, Phase.ASK, Phase.LISTEN))
            with m.Case(Phase.ASK):
                with m.If(self._turn[n]):
                    m.d.comb += self._takes[n].eq(1)
                    m.d.sync += [offered.eq(self._tag), self._hello[n].eq(1),
                                 phase.eq(Phase.HELLO)]
                    anew()
            with m.Case(Phase.HELLO):
                with m.If(fresh):
                    begin(hello.offered, hello.boot)
                    m.d.sync += [phase.eq(Phase.CONFIRM), self._hello[n].eq(0),
                                 path.eq(header.way_back(self._paths))]
                with m.Elif(over):
                    again()
                    m.d.sync += self._hello[n].eq(1)
            with m.Case(Phase.CONFIRM):
                with m.If(self.heard[n]):
                    m.d.comb += events["opened"][n].eq(1)
                    m.d.sync += phase.eq(Phase.OPEN)
                    anew()
                with m.Elif(over & (tries == POLLS)):
                    m.d.comb += self.open[n].eq(1)
                    m.d.sync += [rx.eq(0), tx.eq(0), phase.eq(Phase.ASK)]
                with m.Elif(over):
                    again()
                    m.d.sync += self._poll[n].eq(1)
            with m.Case(Phase.OPEN):
                with m.If(self.heard[n]):
                    anew()
                with m.Elif(over):
                    again()
                    m.d.sync += self._poll[n].eq(1)
        with m.If(self.confirmed[n] & self._answers(n)):
            begin(self._candidate.theirs, self._candidate.boot)
            m.d.comb += [events["opened"][n].eq(1), events["lost"][n].eq(phase == Phase.OPEN)]
            m.d.sync += [phase.eq(Phase.OPEN), self._hello[n].eq(0)]
        silent = (phase == Phase.OPEN) & over & (tries == POLLS) & ~self.heard[n]
        up = (phase == Phase.OPEN) | (phase == Phase.CONFIRM)
        with m.If(by_hello & (self.reopen[n] | ~mine | silent | up & self.failed[n])
                  & (phase != Phase.OFF)):
            m.d.comb += [self.open[n].eq(1), events["lost"][n].eq(phase == Phase.OPEN),
                         restart.eq(1)]
            m.d.sync += [
                rx.eq(0), tx.eq(0), offered.eq(0), self._hello[n].eq(0), self._poll[n].eq(0),
                phase.eq(Mux(mine, Phase.QUIET, Phase.OFF)),
            ]
        with m.Elif(~by_hello):
            m.d.sync += [phase.eq(Phase.OFF), rx.eq(0), tx.eq(0), offered.eq(0)]

        # Also for a moment when software begins it anew: what was under way is gone.
        m.d.sync += self.down[n].eq(
            config.valid & (by_hello & (phase != Phase.OPEN) | self.open[n]))

    def _answers(self, n):
        """Whether session ``n`` answers HELLOs."""
        phase = self.phase[n]
        return (self.config[n].mode == Mode.ANSWERS) & (
            (phase == Phase.LISTEN) | (phase == Phase.OPEN))

    def _greeting_fits(self, m, n, opens, tx, offered):
        """Answers a HELLO; returns "a HELLO_ACK is the answer to our HELLO"."""
        hello, header, phase = self.hello, self.header, self.phase[n]
        greeted, fits, known = (Signal(name=f"{k}{n}") for k in ("is_greeted", "fits", "known"))
        fresh, stale = Signal(name=f"fresh{n}"), self._events["stale"][n]
        m.d.comb += [
            greeted.eq(self.greeted[n]),
            fits.eq((hello.offered != 0) & (hello.security == SecurityMode.NONE)),
            fresh.eq(greeted & fits & opens & (phase == Phase.HELLO) & self._answered),
            known.eq((offered != 0) & self._same),
            stale.eq(greeted & ~fresh),
        ]
        with m.If(greeted & fits & self._answers(n) & (header.type == FrameType.HELLO)
                  & (header.tag == 0)):
            with m.If(known):
                m.d.comb += stale.eq(0)
                m.d.sync += [self._hello[n].eq(1), self._way[n].eq(header.way_back(self._paths))]
            # One of the session that is open comes late.
            with m.Elif(self._ready & ((phase != Phase.OPEN) | (tx != hello.offered))):
                m.d.comb += [stale.eq(0), self._takes[n].eq(1)]
                m.d.sync += [offered.eq(self._tag), self._hello[n].eq(1),
                             self._way[n].eq(header.way_back(self._paths))]
        return fresh

    def _speak(self, m, port):
        """One greeting after the other, of all sessions in turn."""
        o, chosen, pick = self.o, Signal(range(self._sessions)), Signal(range(self._sessions))
        due, greeting, candidate = Signal(self._sessions), Signal(Greeting), port.data
        opens = Array(c.mode == Mode.OPENS for c in self.config)[pick]
        m.d.comb += [
            due.eq(self._hello | self._poll), pick.eq(round_robin(due, chosen)),
            port.addr.eq(pick),
            greeting.type.eq(Mux(self._hello.bit_select(pick, 1),
                                 Mux(opens, FrameType.HELLO, FrameType.HELLO_ACK),
                                 FrameType.ACK)),
            greeting.session.eq(pick),
            greeting.path.eq(Array(self._way)[pick]),
            greeting.tag.eq(candidate.theirs),
            greeting.nonce.eq(candidate.nonce),
            greeting.offered.eq(candidate.offered),
            greeting.echoed.eq(greeting.tag),
        ]
        with m.If(o.valid):
            with m.If(o.ready):
                m.d.sync += o.valid.eq(0)
        with m.Elif(due.any()):
            m.d.sync += [o.valid.eq(1), o.payload.eq(greeting), chosen.eq(pick)]
            with m.If(self._hello.bit_select(pick, 1)):
                m.d.sync += self._hello.bit_select(pick, 1).eq(0)
            with m.Else():
                m.d.sync += self._poll.bit_select(pick, 1).eq(0)


def connect_keeper(m, keeper, link, header, hello):
    """Connect a keeper and a link; the depacketizer has committed ``header``, and ``hello``."""
    m.d.comb += [
        *(getattr(link, name).eq(getattr(keeper, name))
          for name in ("sessions", "open", "greets", "candidate", "down")),
        *(getattr(keeper, name).eq(getattr(link, name))
          for name in ("heard", "greeted", "confirmed", "of")),
        keeper.header.eq(header),
        keeper.hello.eq(hello),
    ]
