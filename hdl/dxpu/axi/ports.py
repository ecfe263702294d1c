"""A proxy with AXI ports, named as tools for AXI expect it."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from dxpu.attach import PciePort
from dxpu.csr.port import connect_ports
from dxpu.proxy.macs import lead_out
from dxpu.stream import connect

from .lite import AxiLite, AxiLiteBridge
from .mac import AxiFrames
from .stream import AxiReceiver, AxiStream, AxiTransmitter

__all__ = ["AxiPorts"]

#: Streams of TLPs to PCIe, by class.
CLASSES = ("tx_p", "tx_np", "tx_cpl")


class TlpsToProxy(wiring.Signature):
    """TLPs from PCIe, seen from the PCIe side; ``tuser`` with ``tlast`` drops the TLP.

    Parameters
    ----------
    width : int
        Data bits per transfer.
    """

    def __init__(self, width):
        super().__init__({"rx": Out(AxiStream(width, user=True))})


class TlpsFromProxy(wiring.Signature):
    """TLPs to PCIe by class, seen from the proxy.

    Parameters
    ----------
    width : int
        Data bits per transfer.
    """

    def __init__(self, width):
        super().__init__({name: Out(AxiStream(width)) for name in CLASSES})


class TlpAdapter(wiring.Component):
    """AXI4-Streams in place of the packet streams of a PCIe port. Combinational.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    port : In(PciePort)
        Port of the proxy.
    i : In(TlpsToProxy)
        TLPs that are broken, or no whole dwords, are dropped as those with ``tuser`` are.
    o : Out(TlpsFromProxy)
    rest : Out
        What else the port has: link and credits, as they are.
    """

    def __init__(self, width):
        self._width = width
        super().__init__({
            "port": In(PciePort(width)), "i": In(TlpsToProxy(width)),
            "o": Out(TlpsFromProxy(width)), "rest": Out(rest_of(width)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rx = receiver = AxiReceiver(self._width, user=True)
        wiring.connect(m, flipped(self.i.rx), receiver.axis)
        connect(m, receiver.o, self.port.rx)
        for name in CLASSES:
            m.submodules[name] = transmitter = AxiTransmitter(self._width)
            connect(m, getattr(self.port, name), transmitter.i)
            wiring.connect(m, transmitter.axis, flipped(getattr(self.o, name)))
        for name, member in self.rest.signature.members.items():
            ours, theirs = getattr(self.rest, name), getattr(self.port, name)
            m.d.comb += ours.eq(theirs) if member.flow is Out else theirs.eq(ours)
        return m


def rest_of(width):
    """Signature of a PCIe port without its packet streams."""
    return wiring.Signature({name: member for name, member in PciePort(width).members.items()
                             if name != "rx" and name not in CLASSES})


class AxiPorts(wiring.Component):
    """Leads the ports of a proxy out, some of them as AXI.

    Parameters
    ----------
    proxy : Component
        :class:`~dxpu.proxy.HostProxy` or :class:`~dxpu.proxy.BoxProxy`. If its MACs are those of
        :func:`~.mac.axi_mac`, the frames get the names of AXI.
    width : int
        Data bits per beat of the proxy.
    tlp : bool
        PCIe ports with AXI4-Streams.
    registers : bool
        AXI4-Lite in place of the register port.

    Members
    -------
    m_axis_eth, s_axis_eth : array of AxiStream
        Frames of each path, to be sent and received, in the place of ``axis``.
    s_axil : In(AxiLite)
        In the place of ``bus``.
    s_axis_<port>, m_axis_<port>
        TLPs of the PCIe port ``<port>``, to and from the proxy; an array as the port is one. The
        port itself keeps its link and its credits.
    """

    def __init__(self, proxy, *, width, tlp=False, registers=False):
        self._proxy, self._width = proxy, width
        self._registers = registers
        self._tlp = {}
        self.registers = proxy.registers
        members = {}
        for name, member in proxy.signature.members.items():
            signature = None if member.is_port else member.signature
            pcie = signature in (PciePort(width), PciePort(width).flip())
            if tlp and pcie:
                self._tlp[name] = member.dimensions
                members[f"s_axis_{name}"] = In(TlpsToProxy(width)).array(*member.dimensions)
                members[f"m_axis_{name}"] = Out(TlpsFromProxy(width)).array(*member.dimensions)
                members[name] = Out(rest_of(width)).array(*member.dimensions)
            elif name == "bus" and registers:
                members["s_axil"] = In(AxiLite())
            elif signature == AxiFrames(width):
                members["m_axis_eth"] = Out(AxiStream(width, user=True)).array(*member.dimensions)
                members["s_axis_eth"] = In(AxiStream(width, user=True, ready=False)).array(
                    *member.dimensions)
            else:
                members[name] = member
        self._frames = "m_axis_eth" in members
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.proxy = proxy = self._proxy
        done = [*self._tlp]
        if self._frames:
            done.append("axis")
            for axis, tx, rx in zip(proxy.axis, self.m_axis_eth, self.s_axis_eth, strict=True):
                wiring.connect(m, axis.tx, flipped(tx))
                wiring.connect(m, axis.rx, flipped(rx))
        if self._registers:
            done.append("bus")
            m.submodules.registers = bridge = AxiLiteBridge()
            wiring.connect(m, flipped(self.s_axil), bridge.axil)
            connect_ports(m, bridge.bus, proxy.bus)
        for name, dimensions in self._tlp.items():
            ports = [getattr(x, name) for x in (proxy, self)] + [
                getattr(self, f"{way}_axis_{name}") for way in "sm"]
            if not dimensions:
                ports = [[port] for port in ports]
            for n, (port, rest, i, o) in enumerate(zip(*ports, strict=True)):
                m.submodules[f"{name}{n if dimensions else ''}_tlps"] = adapter = TlpAdapter(
                    self._width)
                wiring.connect(m, port, adapter.port)
                wiring.connect(m, flipped(i), adapter.i)
                wiring.connect(m, adapter.o, flipped(o))
                wiring.connect(m, adapter.rest, flipped(rest))
        lead_out(m, proxy, self, but=done)
        return m
