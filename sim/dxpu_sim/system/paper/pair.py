"""A host proxy and a box proxy with the line between them, at one of the paper's rates."""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import PciePort
from dxpu.axi import axi_mac
from dxpu.csr import RegisterPort
from dxpu.proxy import BoxProxy, HostProxy
from dxpu.stage import tlp_stage
from dxpu_sim.ethernet.ethernet_switch import EthernetSwitch

from .lines import FRACTION, Wire

__all__ = ["EVENTS", "RATES", "Pair", "Shape"]

#: What happens on the way of a read, in order: its first beat enters the box proxy; a frame begins
#: to leave the core; it is there in the other core; the first beat leaves the host proxy; the first
#: beat of the completion enters it; frame; frame; the first beat leaves the box proxy.
EVENTS = ("request_in", "request_framed", "request_came", "request_out",
          "completion_in", "completion_framed", "completion_came", "completion_out")


@dataclass(frozen=True)
class Shape:
    """Proxies and line at a rate.

    Without ``line`` the MACs are those for 1 Gb/s, and the line is an Ethernet switch with a port
    for each of them. ``deep`` is that of the proxies.
    """

    width: int
    period_ps: int
    gbit_s: int
    deep: bool = False

    @property
    def line(self):
        """Parts of a byte that the line sends in a cycle, or None."""
        return None if self.gbit_s == 1 else self.gbit_s * self.period_ps * FRACTION // 8000


#: By name. 100G: the clock of 512 bits at the user side of PCIe Gen3 x16 (16 GB/s).
RATES = {"100G": Shape(512, 4000, 100, deep=True),
         "10G": Shape(64, 6400, 10, deep=True), "1G": Shape(64, 8000, 1, deep=True)}


class Pair(wiring.Component):
    """Both proxies, the MACs of the core's clock, and the line; all in ``sync``.

    Parameters
    ----------
    rate : str
        Of :data:`RATES`.
    slots : int
    peers : int
    deep : bool, optional
        That of the proxies, in place of the rate's.

    Members
    -------
    upstream : Out(PciePort)
    slot : array of Out(PciePort)
    reset : Out(slots)
        Of the box: the link of a slot must be down.
    host_bus, box_bus : In(RegisterPort)
    delay : In(16)
        Cycles of the line each way; with a switch that of a frame in the switch.
    loss : In(17)
        Probability of a frame's loss each way, in 1/65536.
    events : Out(8)
        Strobes of :data:`EVENTS`, of any TLP.
    to_host, to_box : Out(48)
        Bytes on the line.
    lost : Out(32)
        Frames.
    """

    def __init__(self, rate, *, slots, peers=4, deep=None):
        shape = RATES[rate]
        self._shape, self._slots = shape, slots
        fast = shape.line is not None
        self._fast = fast
        common = {"paths": 1, "peers": peers, "streams": 1,
                  "deep": shape.deep if deep is None else deep,
                  **({"macs": axi_mac(shape.width)} if fast else {})}
        self._host = HostProxy(shape.width, ports=slots, **common)
        self._box = BoxProxy(shape.width, slots=slots, **common)
        #: Register map of each proxy.
        self.maps = {"host": self._host.registers, "box": self._box.registers}
        super().__init__({
            "upstream": Out(PciePort(shape.width)),
            "slot": Out(PciePort(shape.width)).array(slots),
            "reset": Out(slots),
            "host_bus": In(RegisterPort()), "box_bus": In(RegisterPort()),
            "delay": In(16), "loss": In(17), "events": Out(len(EVENTS)),
            "to_host": Out(48), "to_box": Out(48), "lost": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        names = ("eth0_rx", "eth0_tx", "gmii0_rx", "gmii0_tx")
        host, box = self._host, self._box
        for name, proxy in (("host", host), ("box", box)):
            m.submodules[name] = DomainRenamer({n: "sync" for n in names})(proxy)
            wiring.connect(m, wiring.flipped(getattr(self, f"{name}_bus")), proxy.bus)
        wiring.connect(m, wiring.flipped(self.upstream), host.upstream)
        for outer, inner in zip(self.slot, box.slot, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        m.d.comb += [box.wipes.eq(~0), self.reset.eq(box.reset)]
        (self._join_fast if self._fast else self._join_by_switch)(m, host, box)
        frames = host.core.frame[0], box.core.frame[0]

        def frame(stream, end):
            return stream.valid & stream.ready & stream.payload[end]

        def first(stream):
            return tlp_stage(stream).strobe

        m.d.comb += self.events.eq(Cat(
            first(box.slot[0].rx), frame(frames[1].tx, "first"), frame(frames[0].rx, "last"),
            first(host.upstream.tx_np), first(host.upstream.rx), frame(frames[0].tx, "first"),
            frame(frames[1].rx, "last"), first(box.slot[0].tx_cpl)))
        return m

    def _join_fast(self, m, host, box):
        lines = []
        for n, (sender, receiver, total) in enumerate((
                (box, host, self.to_host), (host, box, self.to_box))):
            m.submodules[f"line{n}"] = line = Wire(
                self._shape.width, rate=self._shape.line, seed=n + 1)
            lines.append(line)
            wiring.connect(m, sender.axis[0].tx, line.i)
            wiring.connect(m, line.o, receiver.axis[0].rx)
            m.d.comb += [line.delay.eq(self.delay), line.loss.eq(self.loss),
                         total.eq(line.total)]
        m.d.comb += self.lost.eq(lines[0].lost + lines[1].lost)

    def _join_by_switch(self, m, host, box):
        m.submodules.switch = switch = EthernetSwitch(
            ports=2, nodes={1: 0, 2: 0, 0x101: 1, 0x102: 1})
        wiring.connect(m, switch.port0, host.gmii[0])
        wiring.connect(m, switch.port1, box.gmii[0])
        m.d.comb += [
            switch.delay.eq(self.delay),
            switch.loss.eq(Mux(self.loss >> 16, 0xFFFF, self.loss)),
            # With preamble and gap, which the switch does not count.
            self.to_host.eq(switch.port0_tx_bytes + 20 * switch.port0_tx_frames),
            self.to_box.eq(switch.port1_tx_bytes + 20 * switch.port1_tx_frames),
            self.lost.eq(switch.port0_rx_dropped + switch.port1_rx_dropped),
        ]
