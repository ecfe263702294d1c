"""Two fabric engines with bad lines between them, TLPs in hardware at both ends."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.credit.sizing import GRANTS, FlowControl, grants_in
from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.session.types import Mode
from dxpu.proxy.box import BoxCore
from dxpu.stream import connect
from dxpu_sim.run.clock import SimClock

from .bad_line import BadLine, Faults, LineTotals
from .flows import CLASSES, FlowSink, FlowSource, SinkTotals
from .inbox import Inbox
from .lives import GENERATION, Lives
from .sessions import attach_sessions

__all__ = ["ENDS", "SETTINGS", "FaultBench", "fault_name", "fields", "grants_of", "total_name"]

ENDS = ("host", "box")
NODES = {"host": 0x001, "box": 0x101}
#: Session tags of the frames that each end receives.
TAGS = {"host": 0x4321, "box": 0x1234}
#: Inputs for both engines, with their widths.
SETTINGS = {"ack_delay": 16, "packing_limit": 14, "retry_wait": 16, "hello_wait": 16, "quiet": 20}


def fields(structure):
    """Names and shapes of the fields of a structure."""
    return [(name, field.shape) for name, field in data.Layout.cast(structure)]


def grants_of(end, width):
    """Headers and units that each row of the host's or the box's proxy grants, for each class."""
    return GRANTS if end == "host" else grants_in(
        width, [8 * size * max(1, width // 64) // width for size in BoxCore.REGIONS])


def fault_name(end, field):
    """Port for a field of :class:`~.bad_line.Faults`, for all lines to ``end``."""
    return f"to_{end}_{field}"


def total_name(end, what, path=None):
    """Port for a total of the frames on a path's line to ``end``, or of the TLPs to ``end``."""
    return f"to_{end}_total_{what}" if path is None else f"to_{end}_path{path}_{what}"


class FaultBench(wiring.Component):
    """Engines of a host and a box; the bench sets faults and reads totals from time to time.

    Both engines have flow control, and grant as much as their proxies do. A source obeys the rules
    of a proxy: no TLP of a row with a posted TLP or completion that waits for credits, and no more
    non-posted TLPs than the engine has room for.

    Parameters
    ----------
    width : int
        Data bits per beat, 64 or more.
    rows : int
        Slots of the box, all bound.
    paths : int
        Number of paths.
    split : bool
        Header/data split form of frames.
    arq : str
        Link mode of both engines.
    keyed : bool
        Of both engines. What they need for keys is not here.

    Members
    -------
    ack_delay, packing_limit, retry_wait, hello_wait, quiet : in
        Settings of both engines.
    hello : 1
        Sessions open by HELLO; else registers set them.
    <end>_boot, <end>_reset : 16, 1
        Boot counter of an engine, and its reset. A source sends only in an open session, and when
        all rows are bound.
    delay : 16
        Delay of all lines, in cycles.
    dead : one bit per path
    to_<end>_<fault> : in
        Fields of :class:`~.bad_line.Faults` for all lines to this end.
    <end>_enable, <end>_most, <end>_pause : 1, 32, 16
        Inputs of this end's :class:`~.flows.FlowSource`.
    <end>_stall, <end>_shut : 16, 1
        Inputs of this end's :class:`~.flows.FlowSink`.
    <end>_closed : three bits per row
    surplus : 8
        Inputs of the :class:`~.inbox.Inbox` of an end, and of both.
    fixed : 8
        Input of all sources and sinks.
    salt : 32
        Restart of all random numbers, to be set for some cycles (:class:`~.chance.Chance`).
    <end>_made : 32
    to_<end>_path<p>_<total>, to_<end>_total_<total> : out
        :class:`~.bad_line.LineTotals` and :class:`~.flows.SinkTotals`.
    <end>_<counter> : 32
        Number of pulses of each event of the engine (:attr:`stats`).
    to_<end>_excess, to_<end>_starved_<class> : 32
        Counts of this end's inbox: TLPs without credits, and cycles in which a closed row and class
        has used up its credits.
    to_<end>_beside : 32
        TLPs that came while another TLP of the other end waited for credits.
    <end>_failed : 1
        The session has failed.
    idle : 1
        All lines are empty, and each end has acknowledgements of all its frames.
    cycle : 32
    """

    def __init__(self, width=64, *, rows=4, paths=2, split=False, arq="go-back-n", keyed=False):
        self._width, self._rows, self._paths = width, rows, paths
        self._engines = {end: FabricEngine(width, rows=rows, paths=paths, peers=1, streams=1,
                                           split=split, arq=arq, keyed=keyed,
                                           flow=FlowControl.of(width, grants_of(end, width),
                                                               end=end))
                         for end in ENDS}
        #: Names of the engines' counters.
        self.stats = tuple(self._engines["host"].stats)
        members = {name: In(width) for name, width in SETTINGS.items()}
        members |= {"delay": In(16), "dead": In(paths), "fixed": In(8), "salt": In(32),
                    "surplus": In(8), "hello": In(1), "idle": Out(1), "cycle": Out(32)}
        for end in ENDS:
            members |= {f"{end}_boot": In(16), f"{end}_reset": In(1),
                        f"{end}_enable": In(1), f"{end}_most": In(32), f"{end}_pause": In(16),
                        f"{end}_stall": In(16), f"{end}_shut": In(1), f"{end}_made": Out(32),
                        f"{end}_failed": Out(1), f"{end}_closed": In(3 * rows),
                        f"to_{end}_excess": Out(32), f"to_{end}_beside": Out(32),
                        **{f"to_{end}_starved_{cls}": Out(32) for cls in CLASSES}}
            members |= {fault_name(end, name): In(shape) for name, shape in fields(Faults)}
            members |= {f"{end}_{name}": Out(32) for name in self.stats}
            members |= {total_name(end, name): Out(shape) for name, shape in fields(SinkTotals)}
            members |= {total_name(end, name, path): Out(shape)
                        for name, shape in fields(LineTotals) for path in range(paths)}
        super().__init__(members | self.more_members())

    def more_members(self):
        """Members that a bench made from this one has besides."""
        return {}

    def frames_to(self, m, end, path):
        """The frames that go on the line of ``path`` to ``end``."""
        return self._engines[ENDS[1 - ENDS.index(end)]].frame_o[path]

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock("sync")
        m.d.sync += self.cycle.eq(self.cycle + 1)
        # Verilator evaluates the logic behind an input at each time step, not once per clock.
        self._inputs = {name: Signal(member.shape, name=f"{name}_now")
                        for name, member in self.signature.members.items() if member.flow is In}
        m.d.sync += [now.eq(getattr(self, name)) for name, now in self._inputs.items()]
        busy, self._set_ups, self._watches = [], {}, {}
        for n, (end, peer) in enumerate(zip(ENDS, reversed(ENDS), strict=True)):
            engine = self._engines[end]
            m.submodules[end] = ResetInserter(self._inputs[f"{end}_reset"])(engine)
            self._set_up(m, end, peer)
            lives = self._attach_lives(m, end, engine)
            self._attach_traffic(m, n, end, engine, lives)
            for path in range(self._paths):
                line = BadLine(self._width, seed=2 * path + n + 1)
                m.submodules[f"to_{end}_line{path}"] = line
                connect(m, self.frames_to(m, end, path), line.i)
                connect(m, line.o, engine.frame_i[path])
                m.d.comb += [
                    line.delay.eq(self._inputs["delay"]),
                    line.dead.eq(self._inputs["dead"][path]),
                    line.salt.eq(self._inputs["salt"]),
                    *(line.faults[name].eq(self._inputs[fault_name(end, name)])
                      for name, _ in fields(Faults)),
                    *(getattr(self, total_name(end, name, path)).eq(line.totals[name])
                      for name, _ in fields(LineTotals)),
                ]
                busy.append(~line.idle)
            busy += [self._watches[end].busy]
            for name in self.stats:
                total = getattr(self, f"{end}_{name}")
                m.d.sync += total.eq(total + getattr(engine, f"stat_{name}"))
        m.d.comb += self.idle.eq(~Cat(busy).any())
        return m

    def _set_up(self, m, end, peer):
        engine, hello = self._engines[end], self._inputs["hello"]
        sessions = Module()
        self._set_ups[end], self._watches[end] = attach_sessions(
            sessions, engine, 1, tx_tag=TAGS[peer], rx_tag=TAGS[end], mode=Mux(
                hello, Mode.OPENS if end == "host" else Mode.ANSWERS, Mode.REGISTERS))
        m.submodules[f"{end}_sessions"] = ResetInserter(self._inputs[f"{end}_reset"])(sessions)
        m.d.comb += [
            *(getattr(engine, name).eq(self._inputs[name]) for name in SETTINGS),
            engine.node.eq(NODES[end]),
            engine.peers[0].valid.eq(1),
            engine.peers[0].node.eq(NODES[peer]),
            engine.boot.eq(self._inputs[f"{end}_boot"]),
            engine.local_hello.boot.eq(self._inputs[f"{end}_boot"]),
            getattr(self, f"{end}_failed").eq(self._watches[end].failed),
            *(generation.eq(GENERATION) for generation in engine.generations),
        ]
        for n, row in enumerate(engine.rows):
            m.d.comb += [
                row.node.eq(NODES[peer]),
                row.slot.eq(n + 1 if end == "host" else 0),
                row.local_slot.eq(0 if end == "host" else n + 1),
                row.paths.eq((1 << self._paths) - 1),
                row.used.eq(1),
            ]

    def _attach_lives(self, m, end, engine):
        lives = Lives(rows=self._rows, host=end == "host")
        m.submodules[f"{end}_lives"] = ResetInserter(self._inputs[f"{end}_reset"])(lives)
        connect(m, lives.control, engine.control)
        connect(m, engine.event, lives.event)
        m.d.comb += [
            lives.up.eq(~engine.session_down.any() & self._set_ups[end].done),
            *(getattr(engine, name).eq(getattr(lives, name))
              for name in ("open", "lives", "receiving")),
        ]
        return lives

    def _attach_traffic(self, m, n, end, engine, lives):
        m.submodules[f"{end}_source"] = source = FlowSource(self._width, rows=self._rows,
                                                            seed=101 + n)
        m.submodules[f"{end}_sink"] = sink = FlowSink(self._width, rows=self._rows, seed=103 + n)
        inbox = Inbox(self._width, rows=self._rows, grants=grants_of(end, self._width))
        m.submodules[f"{end}_inbox"] = ResetInserter(self._inputs[f"{end}_reset"])(inbox)
        connect(m, source.o, engine.tlp_i)
        connect(m, engine.tlp_o, inbox.i)
        connect(m, inbox.o, sink.i)
        peer = self._engines[ENDS[1 - n]]
        beside, excess = getattr(self, f"to_{end}_beside"), getattr(self, f"to_{end}_excess")
        with m.If(sink.i.valid & sink.i.ready & sink.i.payload.last
                  & (peer.waiting | peer.np_waits).any()):
            m.d.sync += beside.eq(beside + 1)
        m.d.comb += [
            inbox.open.eq(lives.receiving),
            inbox.surplus.eq(self._inputs["surplus"]),
            inbox.closed.eq(self._inputs[f"{end}_closed"]),
            lives.empty.eq(inbox.empty),
            engine.released.eq(inbox.released),
            engine.released_strobe.eq(inbox.released_strobe),
            source.lives.eq(lives.lives),
            source.hold.eq(Cat(
                Cat(engine.waiting[row], engine.waiting[row] | ~engine.np_room[row],
                    engine.waiting[row]) for row in range(self._rows))),
            excess.eq(inbox.excess),
            *(getattr(self, f"to_{end}_starved_{cls}").eq(count)
              for cls, count in zip(CLASSES, inbox.starved, strict=True)),
        ]
        m.d.comb += [
            source.fixed.eq(self._inputs["fixed"]),
            sink.fixed.eq(self._inputs["fixed"]),
            source.salt.eq(self._inputs["salt"]),
            sink.salt.eq(self._inputs["salt"]),
            source.enable.eq(self._inputs[f"{end}_enable"] & lives.ready & lives.up),
            source.abort.eq(self._inputs[f"{end}_reset"]),
            source.most.eq(self._inputs[f"{end}_most"]),
            source.pause.eq(self._inputs[f"{end}_pause"]),
            *(getattr(sink, name).eq(self._inputs[f"{end}_{name}"])
              for name in ("stall", "shut")),
            getattr(self, f"{end}_made").eq(source.made),
            *(getattr(self, total_name(end, name)).eq(sink.totals[name])
              for name, _ in fields(SinkTotals)),
        ]
