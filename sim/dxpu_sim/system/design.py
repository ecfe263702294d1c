"""The whole system in one design: host proxies, boxes with GPUs, and an Ethernet per path.

Only the PCIe models are outside, in Python: one mailbox per PCIe port, one per register port.
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.crypto import PretendedNoise
from dxpu.ethernet import Mac
from dxpu.proxy import BoxProxy, HostProxy
from dxpu.stage import Stage, tlp_stage
from dxpu.stream import connect
from dxpu.switch import Identity, PlaceholderOptions
from dxpu.switch.config.identity import SlotOptions
from dxpu_sim.ethernet.ethernet_switch import EthernetSwitch
from dxpu_sim.pcie.mailbox import MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock
from dxpu_sim.run.pins import connect_pins

from .nodes import BOX_NODE, HOST_NODE, factory_of
from .probe import EVENTS, Newest, Probe
from .regbox import RegisterBox, RegisterBoxSignature

__all__ = ["System"]

#: The seed of a node's noise is that many times its number.
_NOISE = 0x9E3779B97F4A7


class System(wiring.Component):
    """Host proxies and box proxies, connected by one Ethernet switch per path.

    Parameters
    ----------
    width : int
        Data bits per beat of all proxies.
    boxes : tuple of int
        GPUs in each box, 1 or more, in slots 1, 2, ...
    ports : int
        Downstream ports of the host proxy.
    paths : int
        Ethernet ports of each proxy.
    split : bool
        Header/data split form on the wire.
    dpc : bool
        Downstream Port Containment in the host proxy.
    period_ps : int
        Core clock period. The Ethernet side has its own clock of 8 ns.
    delay : int
        Delay of a frame in each switch, in Ethernet clock cycles.
    placeholder : sequence of int, optional
        Arguments of :class:`~dxpu.switch.PlaceholderOptions`.
    hosts : int
        Number of host proxies, all alike.
    peers, streams : int
        Sessions of each proxy, unless ``split``.
    keys : bool
        Sessions can be opened under keys. The noise of each proxy is pretended.
    managed : bool
        Managers reach the proxies by frames; what a node was given in the factory is that of
        :func:`~.nodes.factory_of`.
    observed : bool
        All proxies measure what happens.

    Members
    -------
    host, gpu0, gpu1, ... : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
        PCIe ports: upstream port of the host proxy, and the slots, counted through all boxes.
        Further hosts are ``host1``, ...
    intruder : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
        An additional Ethernet port on path 0: sends whole frames without FCS (whole dwords) instead
        of TLPs, and collects received frames as class 0.
    host_bus, box0_bus, ... : :class:`~dxpu_sim.system.regbox.RegisterBoxSignature`
    spoil : one bit per proxy
        While bit n is high, proxy n receives a wrong bit in each byte of path 0.
    loss : 16
        Probability of a loss of every frame in an Ethernet switch, in 1/65536.
    dead : one bit per path
        All frames of path n are lost.
    lost : 32
        Number of frames lost by ``loss`` and ``dead``.
    keeps : 1
        GPUs keep what they held when they are reset, so the boxes believe; a constant of a run.
    cycle : 32
        Core clock cycles since reset.
    probe_<proxy>_<event> : :class:`~dxpu_sim.system.probe.Newest`
        The newest event of :data:`~dxpu_sim.system.probe.EVENTS`. ``frame_in`` is the last beat of
        a frame from the MAC; all other events are first beats. The probes of box b cover all its
        slots.
    probe_<proxy>_<direction>_<stage> : :class:`~dxpu_sim.system.probe.Newest`
        The same for each of the proxy's ``stages``.
    """

    #: PCIe models in Python are slow, so the proxies wait for them in most cycles
    #: (:mod:`dxpu_sim.run.rest`).
    rests = True

    def __init__(self, width=64, *, boxes=(2, 1), ports=8, paths=2, split=False, dpc=False,
                 period_ps=8000, delay=125, placeholder=None, hosts=1, peers=16, streams=4,
                 keys=False, managed=False, observed=False):
        if not boxes or any(n not in range(1, 17) for n in boxes):
            raise ValueError(f"boxes must have 1 to 16 GPUs each, not {boxes!r}")
        self._width, self._paths = width, paths
        if hosts not in range(1, 5):
            raise ValueError(f"hosts must be 1 to 4, not {hosts!r}")
        #: GPUs in each box.
        self.boxes = tuple(boxes)
        #: Number of host proxies.
        self.hosts = hosts
        #: Names of all proxies, hosts first, and their node numbers.
        self.names = [*(f"host{n or ''}" for n in range(hosts)),
                      *(f"box{n}" for n in range(len(boxes)))]
        self.nodes = [*range(HOST_NODE, HOST_NODE + hosts),
                      *range(BOX_NODE, BOX_NODE + len(boxes))]
        #: Downstream ports of the host proxy.
        self.ports = ports
        self._period_ps, self._delay, self._keys = period_ps, delay, keys
        self._managed = managed
        common = {"paths": paths, "split": split, "peers": peers, "streams": streams, "keys": keys,
                  "managed": managed, "observed": observed}
        if split:  # the split form needs memory for a TLP of each session
            common |= {"peers": max(4, len(boxes), hosts), "streams": 1}
        held = None if placeholder is None else PlaceholderOptions(*placeholder)
        #: Empty slots show placeholders at boot.
        self.placeholders = held is not None
        identity = Identity(slot=SlotOptions(surprise=not dpc, dpc=dpc), placeholder=held)
        self._host = [HostProxy(width, ports=ports, identity=identity, **common)
                      for _ in range(hosts)]
        self._box = [BoxProxy(width, slots=n, **common) for n in boxes]
        self._proxies = [*self._host, *self._box]
        #: Register map of each proxy, hosts first.
        self.maps = [proxy.registers for proxy in self._proxies]
        members = {"cycle": Out(32), "spoil": In(len(self._proxies)),
                   "loss": In(16), "dead": In(paths), "lost": Out(32), "keeps": In(1),
                   "host": In(MailboxSignature()), "intruder": In(MailboxSignature())}
        for name in (*self.names[1:hosts], *(f"gpu{n}" for n in range(sum(boxes)))):
            members[name] = In(MailboxSignature())
        for name in self.names:
            members[f"{name}_bus"] = In(RegisterBoxSignature())
            for event in (*EVENTS, *self.stages(name)):
                members[f"probe_{name}_{event}"] = Out(Newest)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        # Each clock falls when the other rises, if both have the same period.
        m.submodules.core_clock = SimClock("sync", period_ps=self._period_ps, high_ps=1700,
                                           reset=False)
        m.submodules.ethernet_clock = SimClock("eth", period_ps=8000, phase_ps=1700, high_ps=6300,
                                               reset=False)
        m.d.sync += self.cycle.eq(self.cycle + 1)
        spoil = Signal.like(self.spoil)
        m.d.eth += spoil.eq(self.spoil)

        rename = DomainRenamer({f"gmii{p}_{d}": "eth" for p in range(self._paths)
                                for d in ("rx", "tx")})
        for name, node, proxy in zip(self.names, self.nodes, self._proxies, strict=True):
            m.submodules[name] = rename(proxy)
            m.submodules[f"{name}_bus"] = box = RegisterBox()
            connect_pins(m, getattr(self, f"{name}_bus"), box.py)
            wiring.connect(m, box.bus, proxy.bus)
            if self._keys:
                noise = PretendedNoise(seed=_NOISE * node)
                m.submodules[f"{name}_noise"] = noise
                connect(m, noise.o, proxy.noise)
            if self._managed:
                key, mac, serial = factory_of(node)
                columns = Array(Const(int.from_bytes(key[n:n + 4], "little"), 32)
                                for n in range(0, 16, 4))
                m.d.comb += [
                    proxy.factory.valid.eq(1), proxy.factory.keyed.eq(1),
                    proxy.factory.serial.eq(serial),
                    proxy.factory.mac.eq(int.from_bytes(mac, "big")),
                    proxy.factory.key_column.eq(columns[proxy.factory.column]),
                ]
        self._attach_pcie(m)
        self._attach_ethernet(m, spoil)
        for name, proxy in zip(self.names, self._proxies, strict=True):
            self._probe(m, name, proxy)
        return m

    def stages(self, name):
        """Events inside the proxy of that name, each to its :class:`~dxpu.stage.Stage`."""
        core = self._proxies[self.names.index(name)].core
        return {f"{direction}_{event}": stage for direction, stages in core.stages.items()
                for event, stage in stages.items()}

    def _slots(self):
        return [slot for box in self._box for slot in box.slot]

    def _attach_pcie(self, m):
        names = [*self.names[:self.hosts], *(f"gpu{n}" for n in range(len(self._slots())))]
        ports = [*(host.upstream for host in self._host), *self._slots()]
        for n, (name, port) in enumerate(zip(names, ports, strict=True)):
            m.submodules[f"{name}_port"] = mailbox = TlpPort(self._width, seed=n + 1)
            connect_pins(m, getattr(self, name), mailbox.py)
            connect(m, mailbox.o, port.rx)
            m.d.comb += port.link_up.eq(mailbox.link_up)
            for cls in ("p", "np", "cpl"):
                connect(m, getattr(port, f"tx_{cls}"), getattr(mailbox, f"i_{cls}"))
        resets = [reset for box in self._box for reset in box.reset]
        m.d.comb += [box.wipes.eq((~self.keeps).replicate(len(box.wipes))) for box in self._box]
        for n, reset in enumerate(resets):
            m.d.comb += m.submodules[f"gpu{n}_port"].reset.eq(reset)

    def _attach_ethernet(self, m, spoil):
        nodes = self.nodes
        loss, dead, totals = Signal.like(self.loss), Signal.like(self.dead), []
        m.d.eth += [loss.eq(self.loss), dead.eq(self.dead)]
        for path in range(self._paths):
            switch = EthernetSwitch(ports=len(nodes) + (path == 0), path=path, seed=path,
                                    nodes={node: port for port, node in enumerate(nodes)})
            if path == 0:
                self._attach_intruder(m, getattr(switch, f"port{len(nodes)}"))
            m.submodules[f"ethernet{path}"] = DomainRenamer("eth")(switch)
            m.d.comb += [switch.delay.eq(self._delay), switch.loss.eq(loss),
                         switch.dead.eq(dead[path])]
            totals += [getattr(switch, f"port{n}_rx_dropped") for n in range(len(nodes))]
            for n, proxy in enumerate(self._proxies):
                mac, port = proxy.gmii[path], getattr(switch, f"port{n}")
                wrong = spoil[n] if path == 0 else 0
                m.d.comb += [
                    port.tx.txd.eq(mac.tx.txd),
                    port.tx.tx_en.eq(mac.tx.tx_en),
                    port.tx.tx_er.eq(mac.tx.tx_er),
                    mac.rx.rxd.eq(port.rx.rxd ^ wrong),
                    mac.rx.rx_dv.eq(port.rx.rx_dv),
                    mac.rx.rx_er.eq(port.rx.rx_er),
                ]
        m.d.comb += self.lost.eq(sum(totals[1:], totals[0]))

    def _attach_intruder(self, m, port):
        m.submodules.intruder_mac = mac = Mac(self._width, rx_domain="eth", tx_domain="eth")
        m.submodules.intruder_port = mailbox = TlpPort(self._width, seed=99)
        connect_pins(m, self.intruder, mailbox.py)
        connect(m, mailbox.o, mac.i)
        connect(m, mac.o, mailbox.i_p)
        wiring.connect(m, port, mac.gmii)

    def _probe(self, m, name, proxy):
        ports = [proxy.upstream] if proxy in self._host else list(proxy.slot)

        def first_beats(streams):
            stages = [tlp_stage(stream) for stream in streams]
            return Stage(Cat(s.strobe for s in stages).any(), reduce(or_, (
                Mux(s.strobe, s.note, 0) for s in stages)))

        def frames(streams, end):
            return Stage(Cat(s.valid & s.ready & s.payload[end] for s in streams).any())

        events = {
            "pcie_in": first_beats([p.rx for p in ports]),
            "frame_out": frames([path.tx for path in proxy.core.frame], "first"),
            "gmii_tx": Stage(Cat(g.tx.tx_en for g in proxy.gmii).any(), rises=True),
            "gmii_rx": Stage(Cat(g.rx.rx_dv for g in proxy.gmii).any(), rises=True),
            "frame_in": frames([path.rx for path in proxy.core.frame], "last"),
            "pcie_out": first_beats([getattr(p, f"tx_{c}")
                                     for p in ports for c in ("p", "np", "cpl")]),
        }
        for event, stage in (events | self.stages(name)).items():
            m.submodules[f"probe_{name}_{event}"] = probe = Probe(edge=stage.rises)
            m.d.comb += [
                probe.event.eq(stage.strobe),
                probe.note.eq(stage.note),
                probe.cycle.eq(self.cycle),
                getattr(self, f"probe_{name}_{event}").eq(probe.newest),
            ]
