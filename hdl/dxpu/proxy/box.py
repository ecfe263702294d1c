"""The box proxy: slots with GPUs on one side, an Ethernet node on the other.

This file only wires: the core, then the MACs at its frame ports. Ref: DxPU paper, 3.2 and 3.3
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import (
    PciePort, SharedEgress, SharedIngress, SharedLedger, connect_egress, connect_grants,
)
from dxpu.csr import RegisterPort
from dxpu.fabric.credit.classifier import Classifier, credits_of
from dxpu.fabric.credit.policer import CreditPolicer
from dxpu.fabric.credit.sizing import (
    DEEP_CELLS, LARGEST, FlowControl, grants_in, packets_in,
)
from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.opening.types import KnockPort
from dxpu.fabric.row_gate import RowGate
from dxpu.fabric.wire.format import Role
from dxpu.management.events import NodeEvents
from dxpu.management.unit import ManagementUnit
from dxpu.mapping import BoxTable
from dxpu.rows import ClassMeta
from dxpu.stage import tlp_stage
from dxpu.stream import PacketLayout, connect

from .box_slots import BoxSlots
from .common import CounterList, ProxyRegisters, attach_engine, connect_frames
from .macs import GMII, FramePort, attach_macs, proxy_members
from .keys import KeyShadow, attach_keys, attach_no_keys
from .management import (
    attach_management, connect_managed_frames, directory_of, management_ports,
)
from .malformed import MalformedReporter
from .observed import Observation
from .scrub import Scrub
from .slot_parser import SlotParser

__all__ = ["BoxCore", "BoxProxy"]


class BoxCore(wiring.Component):
    """Passes TLPs between each slot and the host that it is bound to.

    TLPs from slots are stored, merged in turn, parsed, and sent in frames to the host in the row of
    the slot. TLPs from that host, in its session, go to the slot. TLPs from or for a slot that is
    not open are dropped and counted, as are malformed TLPs and bad frames. No TLP is dropped for
    lack of space: credits hold back the slots, and across the fabric the hosts. A slot that waits
    for credits blocks no other. A TLP that a host sends without credits is dropped and counted, and
    that slot alone is closed.

    Parameters
    ----------
    width, paths, peers, streams, split, arq, mac_counters, fast, deep, keys, managed, around,
    observed
        Those of :class:`~dxpu.proxy.host.HostCore`.
    slots : int
        Slots, 1 to 16: PCIe links to GPUs.
    knocks : bool
        A part beside the proxy looks at HELLOs before the box is set up; only with ``keys``.

    Members
    -------
    slot : array of :class:`~dxpu.attach.PciePort`
        PCIe port of slot n + 1 at index n.
    reset : ``slots``
        Bit n: hot reset of the GPU in slot n + 1, until ``link_up`` of the slot is 0 and its queues
        are empty. Its link must not come up before.
    wipes : ``slots``
        Bit n: the GPU in slot n + 1 forgets all that its memory held in a hot reset, before its
        link is up. Constant. The next host waits for any other GPU to be wiped
        (:class:`~.scrub.Scrub`).
    frame, bus, noise, factory, manager_bus
        Those of the host's core.
    knock : :class:`~dxpu.fabric.opening.types.KnockPort`
        With ``knocks``.
    """

    #: Bytes of the buffer of each slot from PCIe.
    BUFFER = 2048
    #: Bytes that a slot sends before another has its turn: with the TLP that crosses it, a frame of
    #: 1500 bytes.
    TURN = 1280
    #: Bytes of the buffers of each slot to PCIe at 32 and 64 bits: posted requests, non-posted
    #: requests, completions. Posted requests get what is in flight, and reported, while frames of
    #: 1500 bytes fill a line of 1 Gb/s. Wider ones have as many beats.
    REGIONS = (8192, 1024, 2048)
    #: The same of ``deep`` proxies, which have four times the buffer from PCIe, and room for two
    #: completions of 64 bytes of each of 136 reads at any width.
    DEEP_REGIONS, DEEP_COMPLETIONS = (8192, 1024, 8192), 32 << 10

    def __init__(self, width, *, slots=8, paths=2, peers=16, streams=4, split=False,
                 arq="go-back-n", mac_counters=None, fast=False, deep=False, keys=False,
                 managed=False, knocks=False, around=None, observed=False):
        if slots not in range(1, 17):
            raise ValueError(f"slots must be 1 to 16, not {slots!r}")
        super().__init__({
            "slot": Out(PciePort(width)).array(slots),
            "reset": Out(slots),
            "wipes": In(slots),
            "frame": Out(FramePort(width, mac_counters or {})).array(paths),
            "bus": In(RegisterPort()),
            **({"noise": In(stream.Signature(1))} if keys else {}),
            **management_ports(managed, keys, around),
            **({"knock": In(KnockPort())} if knocks else {}),
        })
        self._width = width
        self._knocks = knocks
        self._slots = slots
        self._depth = max(16, self.BUFFER * (4 if deep else 1) * 8 // width)
        self._table = BoxTable(slots=slots, paths=paths, streams=streams)
        space = [size * max(1, width // 64)
                 for size in (self.DEEP_REGIONS if deep else self.REGIONS)]
        if deep:
            space[2] = max(space[2], self.DEEP_COMPLETIONS)
        self._egress = SharedEgress(
            width, slots=slots, packets=packets_in(fast=fast, deep=deep), overflow="drop",
            space=space)
        flow = FlowControl.of(width, grants_in(width, self._egress.beats, fast=fast, deep=deep),
                              end="box", fast=fast, deep=deep)
        self._policer = CreditPolicer(width, rows=slots, initial=flow.grants, largest=LARGEST)
        self._engine = FabricEngine(
            width, rows=slots, paths=paths, peers=peers, streams=streams, split=split, arq=arq,
            block=False,  # the queues need the block RAM of an ECP5-45
            flow=flow, keyed=keys, looked_at=knocks, cells=DEEP_CELLS if deep else None)
        self._bindings, self._scrub = BoxSlots(rows=slots), Scrub(rows=slots)
        self._gate = RowGate(width, rows=slots, meta=ClassMeta, inside=True)
        # A TLP that is too large is cut, not dropped: its header has the credits to return.
        self._ingress = SharedIngress(width, slots=slots, depth=self._depth,
                                      turn=-(-self.TURN * 8 // width))
        self._parsers = {name: SlotParser(width, rows=slots)
                         for name in ("from_slots", "to_slots")}
        counters = CounterList()
        counters.add_all("fabric_", self._engine)
        counters.add_all("binding_", self._bindings)
        counters.add("to_slots_dropped", self._gate.stat_dropped,
                     "TLPs to slots that were closed or reset meanwhile; dropped.")
        counters.add_all("to_slots_", self._policer)
        counters.add_all("table_", self._table)
        for name, parser in self._parsers.items():
            counters.add_all(f"{name}_", parser)
        for n in range(1, slots + 1):
            counters.add(f"slot{n}_discarded", self._ingress.stat_discarded[n - 1],
                         f"TLPs from slot {n} that their source discarded.")
            counters.add(f"slot{n}_overflow", self._ingress.stat_overflow[n - 1],
                         f"TLPs from slot {n} that were larger than the buffer; dropped, and "
                         "counted as malformed or as too large, too.")
            counters.add(f"egress{n}_overflow", self._egress.overflow[n - 1],
                         f"Stays 0: TLPs to slot {n} that found no room though they had credits; "
                         "dropped, and the slot is fenced.")
        for n, frame in enumerate(self.frame):
            counters.add_all(f"mac{n}_", frame, on_path=f" on path {n}")
        #: How full queues are, by name (:class:`~dxpu.stage.Fill`).
        self.fills = {**self._engine.fills, "from_slots": self._ingress.fill,
                      "to_slots": self._egress.fill}
        self._observation = Observation("box", width=width, rows=slots, paths=paths,
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
            self._events = NodeEvents(paths=paths, rows=slots)
            for part in (self._management, self._events):
                counters.add_all("management_", part)
        self._registers = ProxyRegisters(
            "box", counters, rows=slots, paths=paths, peers=peers, streams=streams, width=width,
            keys=keys, managed=managed,
            observed=self.fills if observed else None)
        #: The register map (:class:`~dxpu.csr.AddressMap`).
        self.registers = self._registers.map
        #: Name of each counter to its pulse, in ``sync``.
        self.pulses = dict(counters.pulses)
        engine = self._engine
        #: Those of the engine, and more.
        self.stages = {
            "out": {"parsed": tlp_stage(engine.tlp_i), **engine.stages["out"]},
            "in": {**engine.stages["in"], "received": tlp_stage(engine.tlp_o),
                   "parsed": tlp_stage(self._egress.i)},
        }
        #: There is a peer whose sessions are opened without a key.
        self.clear = Signal()
        #: A good frame that was refused (:class:`~dxpu.fabric.receive.types.Refused`), in ``sync``.
        self.refused = self._engine.refused

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = self._table
        m.submodules.engine = engine = self._engine
        m.submodules.bindings, m.submodules.scrub = bindings, scrub = self._bindings, self._scrub
        bus, unit = wiring.flipped(self.bus), self._management
        if unit:
            connect_managed_frames(m, engine, self.frame, unit)
            bus = attach_management(
                m, self, engine, self._registers.file, unit, self._events, slots=[
                    {"bound": row.used, "present": present, "open": is_open, "marked": dirty}
                    for row, present, is_open, dirty in zip(
                        table.rows, self._registers.file.present.slots, bindings.open,
                        self._scrub.dirty, strict=True)])
        else:
            connect_frames(m, engine, self.frame)
        self._registers.wire(m, bus, table.bus)
        file = self._registers.file
        attach_engine(m, engine, file, role=Role.BOX, commits=table.stat_committed,
                      managed=unit is not None)
        if self._shadow:
            attach_keys(m, engine, file, self.clear, self._shadow, self.noise, unit,
                        self.knock if self._knocks else None)
        else:
            attach_no_keys(m, engine, file, self.clear)

        self._attach_rx(m)
        self._attach_tx(m)
        if self._observation:
            self._observation.wire(
                m, self._registers.observed, bus=bus, table=table, engine=engine,
                pulses=self.pulses, fenced=bindings.overflow, entry=self._ingress.o,
                entry_row=self._ingress.source, exit=self._egress.i)
        connect(m, engine.event, bindings.event)
        m.submodules.malformed = malformed = MalformedReporter(rows=self._slots)
        connect(m, bindings.control, malformed.i)
        connect(m, malformed.o, engine.control)
        parser = self._parsers["from_slots"]
        m.d.comb += [
            table.present.eq(file.present.slots),
            # A session that is not open ends the bindings of its host.
            bindings.used.eq(Cat(row.used for row in table.rows) & ~engine.session_down),
            bindings.present.eq(file.present.slots),
            bindings.link_up.eq(Cat(slot.link_up for slot in self.slot)),
            bindings.hot_reset.eq(file.reset.slots),
            bindings.overflow.eq(self._policer.overflow | self._egress.overflow),
            bindings.empty.eq(self._ingress.empty & self._egress.empty),
            bindings.closed.eq(scrub.closed),
            scrub.row_event.eq(table.row_event),
            scrub.open.eq(bindings.open),
            scrub.wipes.eq(self.wipes),
            scrub.hold.eq(file.scrub.hold),
            scrub.maintained.eq(Cat(
                row.used & (row.node == file.scrub.maintainer) for row in table.rows)),
            scrub.wiped.eq(Mux(file.dirty.written, file.dirty.slots_w, 0)),
            file.dirty.slots.eq(scrub.dirty),
            engine.open.eq(bindings.open),
            engine.lives.eq(bindings.lives),
            engine.receiving.eq(bindings.open),
            engine.released.eq(self._policer.released),
            engine.released_strobe.eq(self._policer.released_strobe),
            self.reset.eq(bindings.reset),
            malformed.malformed_strobe.eq(parser.stat_malformed),
            malformed.malformed_row.eq(parser.malformed_row),
            malformed.malformed_life.eq(parser.malformed_life),
            malformed.malformed_header.eq(parser.malformed_header),
            malformed.open.eq(bindings.open),
            malformed.lives.eq(bindings.lives),
        ]
        for n, (row, peer) in enumerate(zip(table.rows, engine.rows, strict=True)):
            m.d.comb += [
                bindings.generations[n].eq(row.generation),
                malformed.generations[n].eq(row.generation),
                engine.generations[n].eq(row.generation),
                peer.node.eq(row.node),
                peer.slot.eq(0),
                peer.local_slot.eq(row.slot),
                peer.stream.eq(row.stream),
                peer.paths.eq(row.paths),
                peer.used.eq(row.used),
            ]
        return m

    def _attach_rx(self, m):
        """TLPs from the slots to the fabric."""
        m.submodules.ingress = ingress = self._ingress
        m.submodules.from_slots = parser = self._parsers["from_slots"]
        m.submodules.ledger = ledger = SharedLedger(
            slots=self._slots, space=self._depth * self._width // 8)
        engine = self._engine
        plain = [k for k, _ in PacketLayout(self._width)]
        for n, slot in enumerate(self.slot):
            connect(m, wiring.flipped(slot.rx), ingress.i[n])
            connect_grants(m, ledger.slot[n], slot)
        meta, (cls, units) = parser.o.p.meta, credits_of(m, parser.tlp_header.words[0])
        m.d.comb += [
            ingress.can_start.eq(~engine.waiting),
            # A slot gets no more of them while one waits for credits of the host.
            ledger.hold_np.eq(engine.np_waits),
            ledger.released.row.eq(meta.row), ledger.released.cls.eq(cls),
            ledger.released.units.eq(units),
            ledger.released_strobe.eq(
                parser.o.valid & parser.o.ready & parser.o.payload.last),
            *(parser.i.payload[k].eq(ingress.o.payload[k]) for k in plain),
            parser.i.payload.meta.row.eq(ingress.source),
            parser.i.payload.meta.life.eq(Array(self._bindings.lives)[ingress.source]),
            parser.i.valid.eq(ingress.o.valid),
            ingress.o.ready.eq(parser.i.ready),
            *(engine.tlp_i.payload[k].eq(parser.o.payload[k]) for k in plain),
            engine.tlp_i.payload.meta.row.eq(parser.o.payload.meta.row),
            engine.tlp_i.payload.meta.life.eq(parser.o.payload.meta.life),
            engine.tlp_i.valid.eq(parser.o.valid),
            parser.o.ready.eq(engine.tlp_i.ready),
        ]

    def _attach_tx(self, m):
        """TLPs from the fabric to the slots."""
        m.submodules.to_slots = parser = self._parsers["to_slots"]
        m.submodules.classifier = classifier = Classifier(self._width)
        m.submodules.alive = gate = self._gate
        plain = [k for k, _ in PacketLayout(self._width)]
        m.submodules.policer = policer = self._policer
        m.submodules.egress = egress = self._egress
        received, parsed, sorted_ = self._engine.tlp_o, parser.o, classifier.i
        connect(m, classifier.o, gate.i)
        connect(m, gate.o, policer.i)
        m.d.comb += [
            *(parser.i.payload[k].eq(received.payload[k]) for k in plain),
            parser.i.payload.meta.row.eq(received.payload.meta.row),
            parser.i.payload.meta.life.eq(received.payload.meta.life),
            parser.i.valid.eq(received.valid),
            received.ready.eq(parser.i.ready),
            gate.open.eq(self._bindings.open),
            gate.lives.eq(self._bindings.lives),
            *(sorted_.p[k].eq(parsed.p[k]) for k in plain),
            sorted_.p.meta.row.eq(parsed.p.meta.row), sorted_.p.meta.life.eq(parsed.p.meta.life),
            sorted_.valid.eq(parsed.valid), parsed.ready.eq(sorted_.ready),
            policer.ahead.eq(classifier.ahead),
            policer.open.eq(self._bindings.open),
            policer.departed.eq(egress.released),
            policer.departed_strobe.eq(egress.released_strobe),
        ]
        connect(m, policer.o, egress.i)
        for streams, slot in zip(egress.slot, self.slot, strict=True):
            connect_egress(m, streams, wiring.flipped(slot))


class BoxProxy(wiring.Component):
    """A :class:`BoxCore` with MACs.

    Parameters
    ----------
    width, slots, paths, peers, streams, split, arq, deep, keys, managed, knocks, around, observed
        Those of the core.
    macs : :class:`~.macs.MacFactory`

    Members
    -------
    slot, reset, wipes, bus, noise, factory, knock, manager_bus
        Those of the core.
    gmii, links
        Those of :class:`~dxpu.proxy.host.HostProxy`.
    """

    def __init__(self, width, *, macs=GMII, **core):
        self._macs = macs
        #: The proxy without its MACs.
        self.core = BoxCore(width, mac_counters=macs.counters, fast=macs.fast, **core)
        self.registers = self.core.registers
        self.pulses = self.core.pulses
        self.refused = self.core.refused
        self.clear = self.core.clear
        super().__init__(proxy_members(self.core, macs))

    def elaborate(self, platform):
        m = Module()
        attach_macs(m, self.core, self._macs, self)
        return m
