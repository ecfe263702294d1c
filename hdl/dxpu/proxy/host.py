"""The host proxy: a PCIe switch to the host, an Ethernet node to the fabric.

This file only wires: the core, then the MACs at its frame ports. Ref: DxPU paper, 3.2 and 3.3
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.arbiter import PacketArbiter
from dxpu.attach import CreditLedger, Egress, PciePort, connect_egress, connect_grants
from dxpu.csr import RegisterPort
from dxpu.fabric.credit.sizing import DEEP_CELLS, FlowControl, host_grants, space_for
from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.wire.format import Role
from dxpu.management.events import NodeEvents
from dxpu.management.unit import ManagementUnit
from dxpu.mapping import HostTable
from dxpu.stage import header_stage, tlp_stage
from dxpu.stream import ForwardRegister, PacketLayout, connect
from dxpu.switch import Identity, SlotTracking, VirtualSwitch
from dxpu.switch.types import SlotRow
from dxpu.tlp.ingress import Ingress
from dxpu.tlp.types import NO_LIMIT

from .bindings import HostBindings
from .common import CounterList, ProxyRegisters, attach_engine, connect_frames
from .detach import Detach
from .host_links import HostLinks
from .host_pool import HostPool
from .macs import GMII, FramePort, attach_macs, proxy_members
from .keys import KeyShadow, attach_keys, attach_no_keys
from .management import (
    attach_management, connect_managed_frames, directory_of, management_ports,
)
from .malformed import MalformedCollector
from .observed import Observation
from .slot_parser import SlotParser
from .stall import StallWatch

__all__ = ["HostCore", "HostProxy"]


class HostCore(wiring.Component):
    """Virtual PCIe switch whose downstream ports lead to GPU slots of boxes across the fabric.

    TLPs from ``upstream.rx`` are parsed, stored, routed by the virtual switch, and sent in frames.
    TLPs received in frames are routed to the host or to another slot. Malformed TLPs and bad frames
    are dropped whole and counted. No TLP is dropped for lack of space: ``rx.ready`` and credits
    hold the host back, credits across the fabric the boxes.

    While the link to the host is down the switch is in reset and slots get a hot reset; bindings
    stay.

    Requests to slots are tracked until their final completion, which is generated here if the slot
    can give none. The card of a slot that takes no posted TLPs and completions for some time is
    removed.

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Downstream ports, 1 to 32.
    paths : int
        Ethernet ports, 1 to 16.
    peers, streams : int
        Nodes that sessions can be with, and sessions with each.
    split : bool
        Send the header/data split form of frames.
    arq : "go-back-n" or "selective"
        Kind of retransmission (:class:`~dxpu.fabric.engine.FabricEngine`).
    identity : :class:`~dxpu.switch.Identity`, optional
        Identifiers of the virtual switch, and options of its slots.
    mac_counters : dict of str to str, optional
        What the MAC of each path counts: name to text.
    fast : bool
        A line is faster than 1 Gb/s (:func:`~dxpu.fabric.credit.sizing.host_grants`).
    deep : bool
        Grants, queues and replay memory are for a line of 100 Gb/s with a round trip of
        microseconds, at 512 bits (:data:`~dxpu.fabric.credit.sizing.DEEP_GRANTS`).
    keys : bool
        Sessions can be opened under keys (docs/reference/keyed-sessions.md).
    managed : bool
        Managers reach the registers by frames (docs/reference/management.md); only with ``keys``.
    around : callable, optional
        Gives the :class:`~dxpu.csr.AddressMap` that managers reach: the proxy's registers, at their
        addresses, and others that lie around them; only with ``managed``. It is called when the
        gateware is made.
    observed : bool
        What happens is measured, and can be read as registers (docs/reference/observe.md).

    Members
    -------
    upstream : :class:`~dxpu.attach.PciePort`
        PCIe port to the host.
    frame : array of :class:`~.macs.FramePort`
        Frames of each path. A frame is sent on a path without a link only if its row allows no path
        with one.
    bus : :class:`~dxpu.csr.RegisterPort`
        Registers (:func:`~dxpu.proxy.registers.address_map`).
    noise : stream of 1
        Raw bits of a noise source, at any pace; only with ``keys``. No keyed session opens without
        them, nor after they have failed a test.
    factory : :class:`~.management.FactoryPort`
        Key, address and serial number of the node; only with ``managed``.
    manager_bus : :class:`~dxpu.csr.RegisterPort`
        Accesses of managers to the map of ``around``; what is the proxy's comes back by ``bus``.
        Only with ``around``; otherwise managers reach the proxy's registers inside.
    """

    #: Bytes of each buffer of TLPs on the PCIe side.
    BUFFER = 4096
    #: Bytes of the queue of requests that wait for the tracker.
    REQUESTS = 2048

    def __init__(self, width, *, ports=8, paths=2, peers=16, streams=4, split=False,
                 identity=None, arq="go-back-n", mac_counters=None, fast=False, deep=False,
                 keys=False, managed=False, around=None, observed=False):
        super().__init__({
            "upstream": Out(PciePort(width)),
            "frame": Out(FramePort(width, mac_counters or {})).array(paths),
            "bus": In(RegisterPort()),
            **({"noise": In(stream.Signature(1))} if keys else {}),
            **management_ports(managed, keys, around),
        })
        self._width = width
        self._ports = ports
        self._depth = max(16, (self.BUFFER << deep) * 8 // width)
        self._ingress = Ingress(width, depth=self._depth)
        self._dpc = (identity or Identity()).slot.dpc
        self._switch = VirtualSwitch(width, ports=ports, identity=identity)
        self._tracking = SlotTracking(width, ports=ports, depth=self._depth,
                                      requests=max(64, self.REQUESTS * 8 // width),
                                      timed=observed)
        self._links = HostLinks(rows=ports)
        # A TLP has several beats at these widths, so a lookup may take several cycles.
        self._table = HostTable(ports=ports, lookups=2, shared=width <= 64, paths=paths,
                                streams=streams, readers=3)
        flow = FlowControl.of(width, host_grants(width, fast=fast, deep=deep))
        self._engine = FabricEngine(width, rows=ports, paths=paths, peers=peers,
                                    streams=streams, split=split,
                                    arq=arq, flow=flow, keyed=keys,
                                    cells=DEEP_CELLS if deep else None)
        self._pool = HostPool(width, rows=ports, space=space_for(width, flow.grants),
                              initial=flow.grants)
        self._egress = Egress(width, depth=self._depth)
        self._parser = SlotParser(width, rows=ports)
        counters = CounterList()
        for prefix, part in (
                ("pcie_", self._ingress), ("egress_", self._egress), ("switch_", self._switch),
                ("tracking_", self._tracking), ("link_", self._links), ("fabric_", self._engine),
                ("pool_", self._pool), ("tlp_", self._parser), ("table_", self._table)):
            counters.add_all(prefix, part)
        for n, frame in enumerate(self.frame):
            counters.add_all(f"mac{n}_", frame, on_path=f" on path {n}")
        #: How full queues are, by name (:class:`~dxpu.stage.Fill`).
        self.fills = {**self._engine.fills, "to_host": self._pool.fill,
                      "requests": self._tracking.fill}
        self._observation = Observation("host", width=width, rows=ports, paths=paths,
                                        fills=self.fills) if observed else None
        if observed:
            for prefix, part in self._observation.parts.items():
                counters.add_all(prefix, part)
        self._shadow = KeyShadow() if keys else None
        if keys:
            counters.add_all("key_", self._shadow)
        self._management = ManagementUnit(
            width, paths, lambda: directory_of(
                around() if around else self.registers)) if managed else None
        if managed:
            self._events = NodeEvents(paths=paths, rows=ports)
            for part in (self._management, self._events):
                counters.add_all("management_", part)
        self._registers = ProxyRegisters(
            "host", counters, rows=ports, paths=paths, peers=peers, streams=streams, width=width,
            keys=keys, managed=managed,
            observed=self.fills if observed else None,
            serial=(identity or Identity()).serial & 0xFFFF_FFFF)
        #: The register map (:class:`~dxpu.csr.AddressMap`).
        self.registers = self._registers.map
        #: Name of each counter to its pulse, in ``sync``.
        self.pulses = dict(counters.pulses)
        engine, tracking, switch = self._engine, self._tracking, self._switch
        #: Those of the engine, and more.
        self.stages = {
            "out": {"parsed": header_stage(self._ingress.info, self._ingress.info.payload),
                    "decided": tlp_stage(switch.downstream_o),
                    "tracked": tlp_stage(tracking.down_o), **engine.stages["out"]},
            "in": {**engine.stages["in"], "received": tlp_stage(engine.tlp_o),
                   "parsed": tlp_stage(tracking.up_i),
                   "tracked": header_stage(tracking.up_info, tracking.up_info.payload.info),
                   "decided": tlp_stage(switch.upstream_o)},
        }
        #: There is a peer whose sessions are opened without a key.
        self.clear = Signal()
        #: Lower half of the switch's serial number, driven by a board that has one; 0: that of the
        #: register ``control.serial``.
        self.serial = Signal(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ingress = self._ingress
        m.submodules.switch = self._switch
        m.submodules.tracking = self._tracking
        m.submodules.table = table = self._table
        m.submodules.engine = engine = self._engine
        m.submodules.egress = self._egress
        bus, unit = wiring.flipped(self.bus), self._management
        if unit:
            connect_managed_frames(m, engine, self.frame, unit)
            links = self._links
            bus = attach_management(
                m, self, engine, self._registers.file, unit, self._events, slots=[
                    {"bound": row.used, "present": present, "open": active, "marked": lost}
                    for row, present, active, lost in zip(
                        table.rows, links.present, self._switch.link_active, links.card_removed,
                        strict=True)])
        else:
            connect_frames(m, engine, self.frame)
        self._registers.wire(m, bus, table.bus)
        attach_engine(m, engine, self._registers.file, role=Role.HOST,
                      commits=table.stat_committed, managed=unit is not None)
        if self._shadow:
            attach_keys(m, engine, self._registers.file, self.clear, self._shadow, self.noise,
                        unit)
        else:
            attach_no_keys(m, engine, self._registers.file, self.clear)

        self._attach_upstream(m)
        self._attach_fabric(m)
        self._attach_slots(m)
        self._attach_malformed(m)
        if self._observation:
            lost, removed = Signal(self._ports), self._links.card_removed
            m.d.sync += lost.eq(removed)
            self._observation.wire(
                m, self._registers.observed, bus=bus, table=table, engine=engine,
                pulses=self.pulses, overdue=self._tracking.expired, fenced=removed & ~lost,
                entry=self.upstream.rx, exit=self._switch.upstream_o, trip=self._tracking.trip)
        switch = self._switch
        for n in range(2):
            connect(m, getattr(switch, f"lookup{n}"), getattr(table, f"lookup{n}"))
            connect(m, getattr(table, f"result{n}"), getattr(switch, f"result{n}"))
        m.d.comb += [
            table.config.eq(switch.config),
            switch.upstream_down.eq(~self.upstream.link_up),
            switch.serial.eq(Mux(self.serial.any(), self.serial,
                                 self._registers.file.serial.number)),
        ]
        for row, peer in zip(table.rows, engine.rows, strict=True):
            m.d.comb += [
                peer.node.eq(row.node),
                peer.slot.eq(row.slot),
                peer.local_slot.eq(0),
                peer.stream.eq(row.stream),
                peer.paths.eq(row.paths),
                peer.used.eq(row.used),
            ]
        return m

    def _attach_slots(self, m):
        """Bindings, presence and links of slots, their resets, and registers of them."""
        switch, tracking, table, engine = self._switch, self._tracking, self._table, self._engine
        file = self._registers.file
        m.submodules.bindings = bindings = HostBindings(rows=self._ports)
        m.submodules.links = links = self._links
        m.submodules.detach = detach = Detach(rows=self._ports)
        m.submodules.stall = stall = StallWatch(rows=self._ports)
        connect(m, bindings.control, engine.control)
        m.d.comb += [
            table.draining.eq(bindings.draining),
            bindings.row_event.eq(table.row_event),
            bindings.reset_request.eq(links.reset_request),
            bindings.events_routed.eq(engine.events_routed),
            bindings.session_down.eq(engine.session_down),
            bindings.lives.eq(switch.lives),
            engine.open.eq(bindings.open),
            engine.lives.eq(switch.lives),
            links.open.eq(bindings.open),
            links.opened.eq(bindings.opened),
            links.hot_reset.eq(file.reset.ports),
            links.remove.eq(tracking.expired | detach.remove | engine.session_down | stall.stalled
                          | self._pool.overflow),
            stall.interval.eq(file.slot_stall.interval),
            *(getattr(stall, name).eq(getattr(engine, name))
              for name in ("waiting", "progress", "limits_received")),
            switch.internal_error.eq(tracking.expired | self._pool.overflow | links.fenced),
            links.drained.eq(tracking.drained),
            links.link_active.eq(switch.link_active),
            links.lives.eq(switch.lives),
            switch.present.eq(links.present),
            switch.link_up.eq(links.link_up),
            switch.bound.eq(bindings.open),
            switch.press.eq(file.press.ports | detach.press),
            switch.peer_room.eq(tracking.room),
            switch.late.eq(tracking.late),
            tracking.link_active.eq(switch.link_active),
            tracking.contained.eq(switch.contained),
            tracking.lives.eq(switch.lives),
            tracking.abort.eq(switch.abort),
            switch.orderly.eq(detach.orderly if self._dpc else 0),
            tracking.deadline.eq(file.request_deadline.cycles),
            tracking.bus.eq(switch.bus),
            detach.start.eq(file.detach.ports),
            detach.deadline.eq(file.detach_deadline.units),
            detach.in_use.eq(switch.in_use),
            detach.open.eq(bindings.open),
            detach.present.eq(links.present),
            detach.link_active.eq(switch.link_active),
            detach.drained.eq(tracking.drained),
        ]
        for n, row in enumerate(table.rows):
            state, control = file.slot[n].state, switch.slot_control[n]
            m.d.comb += [
                bindings.generations[n].eq(row.generation),
                engine.generations[n].eq(row.generation),
                detach.slot_control[n].eq(control),
                state.present.eq(links.present[n]),
                state.link.eq(switch.link_active[n]),
                state.lost.eq(links.card_removed[n]),
                state.drained.eq(tracking.drained[n]),
                state.detach.eq(detach.state[n]),
                state.attention.eq(control.attention_indicator),
                state.power.eq(control.power_indicator),
                state.power_off.eq(control.power_off),
                state.placeholder.eq(switch.placeholder[n]),
            ]

    def _attach_malformed(self, m):
        """Reports of malformed TLPs, found here and in boxes, to the switch."""
        switch, engine, parser, table = self._switch, self._engine, self._parser, self._table
        m.submodules.malformed = malformed = MalformedCollector(rows=self._ports)
        connect(m, engine.event, malformed.i)
        connect(m, malformed.o, self._links.event)
        connect(m, malformed.malformed, switch.malformed)
        m.d.comb += [
            malformed.open.eq(engine.open),
            malformed.link_active.eq(switch.link_active),
            malformed.contained.eq(switch.contained),
            malformed.lives.eq(switch.lives),
            malformed.upstream_malformed.eq(self._ingress.stat_malformed),
            malformed.upstream_header.eq(self._ingress.malformed_header),
            malformed.slot_malformed.eq(parser.stat_malformed),
            switch.malformed_now.eq(malformed.malformed_rows),
            malformed.slot_row.eq(parser.malformed_row),
            malformed.slot_life.eq(parser.malformed_life),
            malformed.slot_header.eq(parser.malformed_header),
            table.generation_row[2].eq(engine.event.payload.row),
            malformed.event_generation.eq(table.generation[2]),
            self._links.event_generation.eq(table.generation[2]),
            *(table.generation_row[n].eq(self._tracking.generation_row[n]) for n in range(2)),
            *(self._tracking.generation[n].eq(table.generation[n]) for n in range(2)),
            # A TLP that comes while a link is down is dropped, whatever its size: the reset that
            # took the link down has reset Max_Payload_Size.
            self._ingress.max_payload.eq(
                Mux(self.upstream.link_up, switch.max_payload[0], NO_LIMIT)),
            *(parser.max_payloads[n].eq(
                Mux(switch.link_active[n], switch.max_payload[n + 1], NO_LIMIT))
              for n in range(self._ports)),
        ]

    def _attach_upstream(self, m):
        m.submodules.ledger = ledger = CreditLedger(space=self._depth * self._width // 8)
        ingress, switch, egress = self._ingress, self._switch, self._egress
        connect(m, wiring.flipped(self.upstream.rx), ingress.i)
        connect(m, ingress.info, switch.upstream_info)
        connect(m, ingress.beats, switch.upstream_beats)
        connect(m, switch.upstream_o, egress.i)
        connect_egress(m, egress, wiring.flipped(self.upstream))
        connect_grants(m, ledger, self.upstream)
        m.d.comb += [
            ledger.info.cls.eq(ingress.released_cls),
            ledger.info.payload_dwords.eq(ingress.released_dwords),
            ledger.released_strobe.eq(ingress.released_strobe),
            ledger.hold_np.eq(~self._tracking.room),
        ]

    def _attach_fabric(self, m):
        """Down: switch, tracking, engine. Up: engine, pool, parser, tracking, switch; completions
        of the tracker join behind the pool. Row n of the host table is downstream port n."""
        engine, switch, tracking = self._engine, self._switch, self._tracking
        m.submodules.parser = parser = self._parser
        m.submodules.up = merge = PacketArbiter(
            self._width, count=2, home=0, meta=SlotRow, register=ForwardRegister)
        connect(m, switch.downstream_o, tracking.down_i)
        connect(m, tracking.down_o, engine.tlp_i)

        m.submodules.pool = pool = self._pool
        connect(m, engine.tlp_o, pool.i)

        from_pool, completions = merge.i
        # One that begins must not delay a TLP that has begun to leave the pool.
        can_start = ~tracking.made.payload.first | tracking.up_room
        m.d.comb += [
            tracking.np_room.eq(engine.np_room),
            pool.room.eq(tracking.up_room),
            pool.np_room.eq(tracking.up_few & self._egress.np_few),
            pool.link_active.eq(switch.link_active),
            engine.receiving.eq(pool.receiving),
            engine.released.eq(pool.released),
            engine.released_strobe.eq(pool.released_strobe),
            *(from_pool.payload[k].eq(pool.o.payload[k]) for k, _ in PacketLayout(self._width)),
            from_pool.payload.meta.row.eq(pool.o.payload.meta.row),
            from_pool.payload.meta.life.eq(pool.o.payload.meta.life),
            from_pool.valid.eq(pool.o.valid),
            pool.o.ready.eq(from_pool.ready),
            completions.payload.eq(tracking.made.payload),
            completions.valid.eq(tracking.made.valid & can_start),
            tracking.made.ready.eq(completions.ready & can_start),
        ]
        connect(m, merge.o, parser.i)
        connect(m, parser.o, tracking.up_i)
        m.d.comb += tracking.up_header.eq(parser.tlp_header)
        connect(m, tracking.up_info, switch.downstream_info)
        m.d.comb += [switch.downstream_early.eq(tracking.up_early),
                     tracking.up_keep.eq(switch.downstream_keep)]
        connect(m, tracking.up_beats, switch.downstream_beats)


class HostProxy(wiring.Component):
    """A :class:`HostCore` with MACs.

    Parameters
    ----------
    width, ports, paths, peers, streams, split, arq, identity, deep, keys, managed, around,
    observed
        Those of the core.
    macs : :class:`~.macs.MacFactory`

    Members
    -------
    upstream, bus, noise, factory, manager_bus
        Those of the core.
    gmii : array of :class:`~dxpu.ethernet.GmiiSignature`
        Path n, in the clock domains ``gmii<n>_rx`` and ``gmii<n>_tx``. Other MACs have a port of
        another name.
    links : ``paths``
        Bit n: path n has a link, as its PHY says. All ones, or 0, if nobody knows.
    """

    def __init__(self, width, *, macs=GMII, **core):
        self._macs = macs
        #: The proxy without its MACs.
        self.core = HostCore(width, mac_counters=macs.counters, fast=macs.fast, **core)
        self.registers = self.core.registers
        self.pulses = self.core.pulses
        self.serial = self.core.serial
        self.clear = self.core.clear
        super().__init__(proxy_members(self.core, macs))

    def elaborate(self, platform):
        m = Module()
        attach_macs(m, self.core, self._macs, self)
        return m
