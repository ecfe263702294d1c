"""MACs around the Ethernet switch model: the design of the switch's bench."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from dxpu import stream
from dxpu.ethernet import Mac
from dxpu_sim.run.clock import SimClock

from .ethernet_switch import EthernetSwitch
from .frame_port import FrameSink, FrameSource

__all__ = ["SwitchBench"]


class SwitchBench(wiring.Component):
    """An :class:`EthernetSwitch` with a :class:`~dxpu.ethernet.Mac` at each port.

    The whole design is in one clock domain at 125 MHz, so latencies are exact.

    Parameters
    ----------
    ports : int
        Number of ports.
    nodes, memory_bytes, queue
        Arguments of the switch; ``nodes`` as a tuple of pairs.

    Members
    -------
    delay, room, drop0, ... : members of the switch
    tx0_length, ..., rx0_length, ...
        Ports of :class:`FrameSource` and :class:`FrameSink`.
    tx_en, rx_dv : Out(ports)
        GMII of the ports, seen from the MACs.
    errors : Out(32)
        Events of all MACs other than good frames.
    """

    def __init__(self, *, ports=3, nodes=(), memory_bytes=32768, queue=256):
        self._ports = ports
        self._switch = EthernetSwitch(ports=ports, nodes=dict(nodes), memory_bytes=memory_bytes,
                                      queue=queue)
        members = {"delay": In(16), "room": In(24), "tx_en": Out(ports), "rx_dv": Out(ports),
                   "errors": Out(32)}
        for n in range(ports):
            members |= {
                f"drop{n}": In(16),
                f"tx{n}_length": In(16), f"tx{n}_discard": In(1), f"tx{n}_send": In(1),
                f"tx{n}_done": Out(1),
                f"rx{n}_length": Out(16), f"rx{n}_discard": Out(1), f"rx{n}_toggle": Out(1),
                f"rx{n}_violations": Out(8),
            }
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.submodules.switch = switch = self._switch
        m.d.comb += [switch.delay.eq(self.delay), switch.room.eq(self.room)]
        bad = []
        for n in range(self._ports):
            m.submodules[f"mac{n}"] = mac = Mac(64, rx_domain="sync", tx_domain="sync")
            m.submodules[f"source{n}"] = source = FrameSource(64, max_bytes=2048)
            m.submodules[f"sink{n}"] = sink = FrameSink(64, max_bytes=2048)
            connect(m, mac.gmii, getattr(switch, f"port{n}"))
            stream.connect(m, source.o, mac.i)
            stream.connect(m, mac.o, sink.i)
            m.d.comb += [getattr(switch, f"drop{n}").eq(getattr(self, f"drop{n}")),
                         self.tx_en[n].eq(mac.gmii.tx.tx_en), self.rx_dv[n].eq(mac.gmii.rx.rx_dv)]
            m.d.comb += [getattr(source, name).eq(getattr(self, f"tx{n}_{name}"))
                         for name in ("length", "discard", "send")]
            m.d.comb += getattr(self, f"tx{n}_done").eq(source.done)
            m.d.comb += [getattr(self, f"rx{n}_{name}").eq(getattr(sink, name))
                         for name in ("length", "discard", "toggle", "violations")]
            bad += [getattr(mac, f"stat_{name}") for name in Mac.STATISTICS
                    if name not in ("rx_good", "tx_good", "tx_aborted")]
        m.d.sync += self.errors.eq(self.errors + sum(bad))
        return m
