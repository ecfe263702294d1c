"""The host proxy: a PCIe switch to the host, an Ethernet node to the fabric.

This file only wires. Ref: DxPU paper, 3.2 and 3.3
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..attach import CreditLedger, Egress, PciePort, connect_egress, connect_grants
from ..csr import RegisterPort
from ..ethernet import GmiiSignature
from ..fabric.engine import FabricEngine
from ..mapping import HostTable
from ..queue import PacketQueue
from ..stream import PacketLayout, connect
from ..switch import VirtualSwitch
from ..tlp.parser import Ingress
from .bindings import HostBindings
from .common import ProxyRegisters, attach_engine, connect_macs, make_macs, stats_of
from .row_parser import RowInfo, RowParser

__all__ = ["HostProxy"]


class HostProxy(wiring.Component):
    """Virtual PCIe switch whose downstream ports lead to GPU slots of boxes across the fabric.

    TLPs that come on ``upstream.rx`` are parsed and stored, routed by the virtual switch, and leave
    as frames; TLPs that come in frames are routed towards the host or another slot. Bad TLPs and
    frames are dropped whole and counted. Between PCIe and the MACs nothing is lost for want of
    space, ``rx.ready`` holds the host back; from the fabric, frames that find their queue full are
    lost and counted (credits across the fabric do not exist yet).

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Downstream ports, 1 to 32.
    paths : int
        Ethernet ports, 1 to 16.
    sessions : int
        (peer, stream) pairs at a time.
    split : bool
        Header/data split form on the wire.

    Members
    -------
    upstream : :class:`~dxpu.attach.PciePort`
    gmii : array of :class:`~dxpu.ethernet.GmiiSignature`
        Path n is in the clock domains ``gmii<n>_rx`` and ``gmii<n>_tx``.
    bus : :class:`~dxpu.csr.RegisterPort`
        Registers of :func:`~dxpu.proxy.registers.address_map`.
    """

    #: Bytes of each buffer for TLPs on the PCIe side.
    BUFFER = 4096

    def __init__(self, width, *, ports=8, paths=2, sessions=4, split=False):
        self._width = width
        self._ports = ports
        self._depth = max(16, self.BUFFER * 8 // width)
        self._ingress = Ingress(width, depth=self._depth)
        self._switch = VirtualSwitch(width, ports=ports)
        self._table = HostTable(ports=ports, lookups=2)
        self._engine = FabricEngine(width, rows=ports, paths=paths, sessions=sessions, split=split)
        self._egress = Egress(width, depth=self._depth)
        self._parser = RowParser(width)
        self._macs = make_macs(width, paths)
        self._stats = {
            **stats_of("pcie_", self._ingress), **stats_of("egress_", self._egress),
            **stats_of("switch_", self._switch), **stats_of("fabric_", self._engine),
            **stats_of("tlp_", self._parser), **stats_of("table_", self._table),
        }
        for n, mac in enumerate(self._macs):
            self._stats |= stats_of(f"mac{n}_", mac)
        self._registers = ProxyRegisters(
            "host", dict.fromkeys(self._stats, ""), rows=ports, paths=paths, sessions=sessions,
            width=width)
        #: The register map (:class:`~dxpu.csr.AddressMap`).
        self.registers = self._registers.map
        super().__init__({
            "upstream": Out(PciePort(width)),
            "gmii": Out(GmiiSignature()).array(paths),
            "bus": In(RegisterPort()),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ingress = self._ingress
        m.submodules.switch = self._switch
        m.submodules.table = table = self._table
        m.submodules.engine = engine = self._engine
        m.submodules.egress = self._egress
        m.submodules.bindings = bindings = HostBindings(rows=self._ports)
        connect_macs(m, self._macs, engine, self.gmii)
        self._registers.wire(m, self.bus, table.bus, self._stats)
        file = self._registers.file
        attach_engine(m, engine, file)

        self._attach_upstream(m)
        self._attach_fabric(m)
        switch = self._switch
        for n in range(2):
            connect(m, getattr(switch, f"lookup{n}"), getattr(table, f"lookup{n}"))
            connect(m, getattr(table, f"result{n}"), getattr(switch, f"result{n}"))
        connect(m, bindings.control, engine.control)
        # Secondary Bus Reset of a port is a level; its slot gets one RESET when it begins.
        in_reset = Signal(self._ports)
        m.d.sync += in_reset.eq(switch.slot_reset)
        m.d.comb += [
            table.config.eq(switch.config),
            table.draining.eq(bindings.draining),
            bindings.committed.eq(table.committed),
            bindings.reset.eq(file.reset.ports | (switch.slot_reset & ~in_reset)),
            engine.open.eq(bindings.open),
            engine.event.ready.eq(1),  # nothing that a box reports has an effect yet
            switch.present.eq(file.present.ports & bindings.open),
        ]
        for n, (row, peer) in enumerate(zip(table.rows, engine.rows, strict=True)):
            m.d.comb += [
                bindings.generation[n].eq(row.generation),
                peer.node.eq(row.node),
                peer.slot.eq(row.slot),
                peer.local_slot.eq(0),
                peer.stream.eq(row.stream),
                peer.paths.eq(row.paths),
                peer.used.eq(row.used),
            ]
        return m

    def _attach_upstream(self, m):
        m.submodules.ledger = ledger = CreditLedger(space=self._depth * self._width // 8)
        ingress, switch, egress = self._ingress, self._switch, self._egress
        connect(m, wiring.flipped(self.upstream.rx), ingress.i)
        connect(m, ingress.o, switch.upstream_i)
        connect(m, switch.upstream_o, egress.i)
        connect_egress(m, egress, wiring.flipped(self.upstream))
        connect_grants(m, ledger, self.upstream)
        m.d.comb += [
            switch.malformed.eq(ingress.stat_malformed),
            switch.malformed_header.eq(ingress.malformed_header),
            ledger.info.eq(ingress.o.payload.meta),
            ledger.released.eq(ingress.o.valid & ingress.o.ready & ingress.o.payload.last),
        ]

    def _attach_fabric(self, m):
        engine, switch = self._engine, self._switch
        m.submodules.parser = parser = self._parser
        m.submodules.from_fabric = queue = PacketQueue(self._width, depth=self._depth, meta=RowInfo)
        connect(m, engine.tlp_o, parser.i)
        connect(m, parser.o, queue.i)
        plain = [k for k, _ in PacketLayout(self._width)]
        up, down = switch.downstream_i, switch.downstream_o
        # A row of the host table is a downstream port.
        m.d.comb += [
            *(up.payload[k].eq(queue.o.payload[k]) for k in plain),
            up.payload.meta.port.eq(queue.o.payload.meta.row),
            up.payload.meta.info.eq(queue.o.payload.meta.info),
            up.valid.eq(queue.o.valid),
            queue.o.ready.eq(up.ready),
            *(engine.tlp_i.payload[k].eq(down.payload[k]) for k in plain),
            engine.tlp_i.payload.meta.row.eq(down.payload.meta.port),
            engine.tlp_i.valid.eq(down.valid),
            down.ready.eq(engine.tlp_i.ready),
        ]
