"""Many hosts that send to one box, through one Ethernet switch."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.ethernet import GmiiSignature, Mac
from dxpu.fabric.credit.sizing import FlowControl
from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.session.types import Mode
from dxpu.stream import connect
from dxpu_sim.ethernet.ethernet_switch import EthernetSwitch
from dxpu_sim.run.clock import SimClock
from dxpu_sim.run.module import instance_of

from .fault_design import fields, grants_of, total_name
from .flows import FlowSink, FlowSource, SinkTotals
from .inbox import Inbox
from .lives import GENERATION, Lives
from .sessions import attach_sessions

__all__ = ["SETTINGS", "SWITCH_TOTALS", "IncastBench"]

HOST_NODE, BOX_NODE = 0x001, 0x101
BOX_TAG, HOST_TAG = 0x1234, 0x4321
#: Inputs for all engines, with their widths.
SETTINGS = {"ack_delay": 16, "packing_limit": 14, "retry_wait": 16}
#: Totals of the Ethernet switch's ports.
SWITCH_TOTALS = ("rx_frames", "rx_bad", "tx_frames", "tx_overflow")
#: Inputs of the hosts' sources.
TRAFFIC = {"most": 32, "fixed": 8, "salt": 32}


def _engine(width, end, rows, arq):
    return FabricEngine(width, rows=rows, paths=1, peers=rows, streams=1, arq=arq,
                        flow=FlowControl.of(width, grants_of(end, width), end=end))


def _set_up(m, engine, settings, *, node, peers, slots):
    """Connect settings, MAC and bindings of an engine; return MAC, bindings and session watch.

    Row n belongs to ``peers[n]`` and ``slots[n]``; the slots are here if there are several peers.
    """
    box = len(peers) > 1
    m.submodules.engine = engine
    m.submodules.mac = mac = Mac(engine._width, rx_domain="sync", tx_domain="sync")
    m.submodules.lives = lives = Lives(rows=len(peers), host=not box)
    connect(m, engine.frame_o[0], mac.i)
    connect(m, mac.o, engine.frame_i[0])
    connect(m, lives.control, engine.control)
    connect(m, engine.event, lives.event)
    m.d.comb += [
        *(getattr(engine, name).eq(settings[name]) for name in SETTINGS),
        engine.node.eq(node),
        *(generation.eq(GENERATION) for generation in engine.generations),
        *(getattr(engine, name).eq(getattr(lives, name))
          for name in ("open", "lives", "receiving")),
    ]
    for known, peer, slot, row in zip(engine.peers, peers, slots, engine.rows, strict=True):
        m.d.comb += [
            row.node.eq(peer),
            row.slot.eq(0 if box else slot),
            row.local_slot.eq(slot if box else 0),
            row.paths.eq(1),
            row.used.eq(1),
            known.valid.eq(1),
            known.node.eq(peer),
        ]
    m.submodules.sessions = sessions = Module()
    set_up, watch = attach_sessions(sessions, engine, len(peers), mode=Mode.REGISTERS,
                            tx_tag=HOST_TAG if box else BOX_TAG,
                            rx_tag=BOX_TAG if box else HOST_TAG)
    m.d.comb += lives.up.eq(~engine.session_down.any() & set_up.done)
    return mac, lives, watch


class IncastHost(wiring.Component):
    """A host's engine and MAC, and a source of TLPs for its slot.

    Parameters
    ----------
    width : int
    arq : str

    Members
    -------
    gmii : Out(GmiiSignature())
    index : 8
        Number of this host.
    ack_delay, packing_limit, retry_wait, most, fixed, salt : in
        Inputs of :class:`IncastBench`.
    enable : 1
    made : 32
    ready : 1
        The slot is bound.
    failed, busy : 1
        The session has failed; acknowledgements are missing.
    stat_* : 1
        Events of the engine.
    """

    def __init__(self, width, *, arq):
        self._width = width
        self._engine = _engine(width, "host", 1, arq)
        super().__init__({
            "gmii": Out(GmiiSignature()), "index": In(8), "enable": In(1), "made": Out(32),
            "ready": Out(1), "failed": Out(1), "busy": Out(1),
            **{name: In(width) for name, width in (SETTINGS | TRAFFIC).items()},
            **{f"stat_{name}": Out(1) for name in self._engine.stats},
        })

    def elaborate(self, platform):
        m = Module()
        engine = self._engine
        mac, lives, watch = _set_up(
            m, engine, {name: getattr(self, name) for name in SETTINGS},
            node=HOST_NODE + self.index, peers=[BOX_NODE], slots=[self.index + 1])
        wiring.connect(m, wiring.flipped(self.gmii), mac.gmii)
        m.submodules.source = source = FlowSource(self._width, rows=1, seed=200)
        connect(m, source.o, engine.tlp_i)
        m.d.comb += [
            lives.empty.eq(~0),
            engine.tlp_o.ready.eq(1),
            source.most.eq(self.most),
            source.fixed.eq(self.fixed),
            # Hosts with the same salt must send different traffic.
            source.salt.eq(Mux(self.salt != 0, self.salt ^ (self.index + 1) << 20, 0)),
            source.first.eq(self.index),
            source.enable.eq(self.enable),
            source.lives.eq(lives.lives),
            source.hold.eq(Cat(engine.waiting, engine.waiting | ~engine.np_room, engine.waiting)),
            self.made.eq(source.made),
            self.ready.eq(lives.ready),
            self.failed.eq(watch.failed),
            self.busy.eq(watch.busy),
            *(getattr(self, f"stat_{name}").eq(getattr(engine, f"stat_{name}"))
              for name in engine.stats),
        ]
        return m


class IncastBox(wiring.Component):
    """The box's engine and MAC, a slot for each host, and the check of received TLPs.

    Parameters
    ----------
    width, hosts : int
    arq : str

    Members
    -------
    gmii : Out(GmiiSignature())
    ack_delay, packing_limit, retry_wait, most, fixed, salt : in
        Inputs of :class:`IncastBench`.
    totals : :class:`~.flows.SinkTotals`
    excess : 32
        TLPs without credits, counted by the inbox.
    taken : ``hosts``
        Strobes: a TLP of host n has come.
    ready, failed, busy, stat_*
        As for :class:`IncastHost`.
    """

    def __init__(self, width, *, hosts, arq):
        self._width, self._hosts = width, hosts
        self._engine = _engine(width, "box", hosts, arq)
        super().__init__({
            "gmii": Out(GmiiSignature()), "totals": Out(SinkTotals), "excess": Out(32),
            "taken": Out(hosts), "ready": Out(1), "failed": Out(1), "busy": Out(1),
            **{name: In(width) for name, width in (SETTINGS | TRAFFIC).items()},
            **{f"stat_{name}": Out(1) for name in self._engine.stats},
        })

    def elaborate(self, platform):
        m = Module()
        engine, count = self._engine, range(self._hosts)
        mac, lives, watch = _set_up(
            m, engine, {name: getattr(self, name) for name in SETTINGS}, node=BOX_NODE,
            peers=[HOST_NODE + n for n in count], slots=[n + 1 for n in count])
        wiring.connect(m, wiring.flipped(self.gmii), mac.gmii)
        m.submodules.inbox = inbox = Inbox(self._width, rows=self._hosts,
                                           grants=grants_of("box", self._width))
        m.submodules.sink = sink = FlowSink(self._width, rows=self._hosts, seed=100)
        connect(m, engine.tlp_o, inbox.i)
        connect(m, inbox.o, sink.i)
        last = sink.i.valid & sink.i.ready & sink.i.payload.last
        m.d.comb += [
            inbox.open.eq(lives.receiving),
            lives.empty.eq(inbox.empty),
            engine.released.eq(inbox.released),
            engine.released_strobe.eq(inbox.released_strobe),
            sink.fixed.eq(self.fixed),
            sink.salt.eq(self.salt),
            self.totals.eq(sink.totals),
            self.excess.eq(inbox.excess),
            self.taken.eq(Mux(last, 1 << sink.i.payload.meta.row, 0)),
            self.ready.eq(lives.ready),
            self.failed.eq(watch.failed),
            self.busy.eq(watch.busy),
            *(getattr(self, f"stat_{name}").eq(getattr(engine, f"stat_{name}"))
              for name in engine.stats),
        ]
        return m


class IncastBench(wiring.Component):
    """Engines of hosts, each with one slot of the box, their MACs and the switch between them.

    The whole design runs at 125 MHz; each port of the switch has 1 Gbit/s. Registers set the
    sessions. The hosts send TLPs; the box sends acknowledgements and credits.

    Parameters
    ----------
    width : int
        Data bits per beat, 64 or more.
    hosts : int
        Number of hosts.
    arq : str
        Link mode of all engines.

    Members
    -------
    ack_delay, packing_limit, retry_wait : in
        Settings of all engines.
    delay, queue_bytes : 16, 24
        ``delay`` and ``room`` of the switch.
    enable, most, fixed, salt
        Inputs of each :class:`~.flows.FlowSource`; all sources begin when all slots are bound.
    host<n>_made, host<n>_came : 32
        TLPs made by a host's source, and TLPs that came to its slot.
    started : 32
        Cycle in which the sources began.
    first_done : 32
        Cycle in which all TLPs of some host had come, 0 before.
    share<n> : 32
        TLPs of a host that had come by then.
    to_box_total_<total>, to_box_excess
        Counts of the sink and the inbox.
    box_<counter>, host_<counter> : 32
        Number of pulses of each event, of the box's engine and of all hosts' engines
        (:attr:`stats`).
    box_port_<total>, host_port_<total>, box_port_peak : 32
        Totals of the switch's port to the box, and of all other ports.
    failed : 1
    idle : 1
        Each end has acknowledgements of all its frames.
    cycle : 32
    """

    def __init__(self, width=64, *, hosts=8, arq="go-back-n"):
        self._hosts = hosts
        self._box = IncastBox(width, hosts=hosts, arq=arq)
        #: A separate module, so that it is translated once for all hosts.
        self.parts = {"incast_host": IncastHost(width, arq=arq)}
        #: Names of the engines' counters.
        self.stats = tuple(name.removeprefix("stat_") for name in self._box.signature.members
                           if name.startswith("stat_"))
        members = {name: In(width) for name, width in (SETTINGS | TRAFFIC).items()}
        members |= {"delay": In(16), "queue_bytes": In(24), "enable": In(1),
                    "started": Out(32), "first_done": Out(32), "to_box_excess": Out(32),
                    "failed": Out(1), "idle": Out(1), "cycle": Out(32), "box_port_peak": Out(32)}
        members |= {f"host{n}_{name}": Out(32) for n in range(hosts) for name in ("made", "came")}
        members |= {f"share{n}": Out(32) for n in range(hosts)}
        members |= {total_name("box", name): Out(shape) for name, shape in fields(SinkTotals)}
        for end in ("box", "host"):
            members |= {f"{end}_{name}": Out(32) for name in self.stats}
            members |= {f"{end}_port_{name}": Out(32) for name in SWITCH_TOTALS}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock("sync")
        m.d.sync += self.cycle.eq(self.cycle + 1)
        # Verilator evaluates the logic behind an input at each time step, not once per clock.
        inputs = {name: Signal(member.shape, name=f"{name}_now")
                  for name, member in self.signature.members.items() if member.flow is In}
        m.d.sync += [now.eq(getattr(self, name)) for name, now in inputs.items()]
        m.submodules.box = box = self._box
        nodes = [BOX_NODE, *(HOST_NODE + n for n in range(self._hosts))]
        m.submodules.switch = switch = EthernetSwitch(
            ports=len(nodes), nodes={node: port for port, node in enumerate(nodes)},
            # More frames than credits allow; only bytes are limited.
            queue=2048, memory_bytes=1 << 16)
        m.d.comb += [switch.delay.eq(inputs["delay"]), switch.room.eq(inputs["queue_bytes"])]
        hosts = []
        for n in range(self._hosts):
            m.submodules[f"host{n}"], host = instance_of("incast_host",
                                                         self.parts["incast_host"])
            hosts.append(host)
            m.d.comb += host.index.eq(n)
        for n, end in enumerate([box, *hosts]):
            wiring.connect(m, getattr(switch, f"port{n}"), end.gmii)
            m.d.comb += [getattr(end, name).eq(inputs[name]) for name in SETTINGS | TRAFFIC]
        self._follow(m, box, hosts, inputs)
        self._count(m, switch, box, hosts)
        return m

    def _follow(self, m, box, hosts, inputs):
        """Start all sources together, and record the share of each host when the first host is
        done."""
        ready, done = Signal(), Signal(self._hosts)
        m.d.comb += [
            ready.eq(inputs["enable"] & box.ready & Cat(host.ready for host in hosts).all()),
            self.to_box_excess.eq(box.excess),
            *(getattr(self, total_name("box", name)).eq(box.totals[name])
              for name, _ in fields(SinkTotals)),
        ]
        with m.If(ready & (self.started == 0)):
            m.d.sync += self.started.eq(self.cycle)
        first = done.any() & (self.first_done == 0)
        with m.If(first):
            m.d.sync += self.first_done.eq(self.cycle)
        for n, host in enumerate(hosts):
            came, share = getattr(self, f"host{n}_came"), getattr(self, f"share{n}")
            m.d.sync += came.eq(came + box.taken[n])
            m.d.comb += [
                host.enable.eq(ready),
                getattr(self, f"host{n}_made").eq(host.made),
                done[n].eq((came != 0) & (came == inputs["most"])),
            ]
            with m.If(first):
                m.d.sync += share.eq(came)

    def _count(self, m, switch, box, hosts):
        ends = [box, *hosts]
        m.d.comb += [
            self.failed.eq(Cat(end.failed for end in ends).any()),
            self.idle.eq(~Cat(end.busy for end in ends).any()),
            self.box_port_peak.eq(switch.port0_peak),
        ]
        for name in self.stats:
            for end, some in (("box", [box]), ("host", hosts)):
                total, pulses = getattr(self, f"{end}_{name}"), Signal(8, name=f"{end}_{name}_n")
                m.d.comb += pulses.eq(sum((getattr(one, f"stat_{name}") for one in some), C(0, 8)))
                m.d.sync += total.eq(total + pulses)
        for name in SWITCH_TOTALS:
            ports = [getattr(switch, f"port{n}_{name}") for n in range(self._hosts + 1)]
            m.d.comb += [getattr(self, f"box_port_{name}").eq(ports[0]),
                         getattr(self, f"host_port_{name}").eq(sum(ports[1:], C(0, 32)))]
