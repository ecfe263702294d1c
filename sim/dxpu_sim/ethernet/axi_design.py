"""A host proxy and a box proxy with the ports of AXI, joined by a line of their MACs' rate."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.axi import AxiPorts, axi_mac
from dxpu.proxy import BoxProxy, HostProxy
from dxpu.proxy.macs import lead_out
from dxpu.proxy.verilog import PlainPorts

from .axi_line import Line

__all__ = ["NAMES", "SLOTS", "STATISTICS", "axi_pair", "proxies"]

#: The proxies; line n is what proxy n sends.
NAMES = ("host", "box")
#: Slots.
SLOTS = 2
#: Outputs of each line.
STATISTICS = ("frames", "spoiled", "wire_bytes", "underruns", "violations", "runts")
FRAMES = ("m_axis_eth", "s_axis_eth")


def proxies(width, *, own_clocks=True):
    """The two proxies of ``dxpu generate --axi``, with :data:`SLOTS` slots, one path, one peer and
    one stream."""
    shape = {"paths": 1, "peers": 1, "streams": 1, "macs": axi_mac(width, own_clocks=own_clocks)}
    return [AxiPorts(proxy, width=width, tlp=True, registers=True) for proxy in (
        HostProxy(width, ports=SLOTS, **shape), BoxProxy(width, slots=SLOTS, **shape))]


class AxiPair(wiring.Component):
    """The proxies and the lines.

    Parameters
    ----------
    width : int
        Data bits per beat.
    own_clocks : bool
        The MACs run by the domain ``mac``, else by that of the core.

    Members
    -------
    host, box : Out
        Ports of the proxies, but for the frames.
    <proxy>_spoil : In(16)
        Of the line that the proxy sends on.
    <proxy>_<statistic> : Out
        Of that line, each of :data:`STATISTICS`.
    """

    def __init__(self, width, *, own_clocks=True):
        self._proxies = proxies(width, own_clocks=own_clocks)
        self._lines = [Line(width) for _ in NAMES]
        self._own_clocks = own_clocks
        members = {}
        for name, proxy, line in zip(NAMES, self._proxies, self._lines, strict=True):
            members[name] = Out(wiring.Signature({
                port: member for port, member in proxy.signature.members.items()
                if port not in FRAMES}))
            members[f"{name}_spoil"] = In(16)
            for statistic in STATISTICS:
                members[f"{name}_{statistic}"] = line.signature.members[statistic]
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        domains = {f"eth0_{way}": "mac" for way in ("rx", "tx")}
        for n, (name, proxy, line) in enumerate(
                zip(NAMES, self._proxies, self._lines, strict=True)):
            m.submodules[name] = DomainRenamer(domains)(proxy)
            m.submodules[f"{name}_line"] = DomainRenamer("mac" if self._own_clocks else "sync")(
                line)
            lead_out(m, proxy, getattr(self, name), but=FRAMES)
            wiring.connect(m, proxy.m_axis_eth[0], line.i)
            wiring.connect(m, line.o, self._proxies[1 - n].s_axis_eth[0])
            m.d.comb += line.spoil.eq(getattr(self, f"{name}_spoil"))
            m.d.comb += [getattr(self, f"{name}_{statistic}").eq(getattr(line, statistic))
                         for statistic in STATISTICS]
        return m


def axi_pair(width, *, own_clocks=True):
    """An :class:`AxiPair` with ports named as in the generated Verilog, behind ``host_`` and
    ``box_``. Its clocks are ``clk`` and, with clocks of the MACs, ``mac_clk``."""
    return PlainPorts(AxiPair(width, own_clocks=own_clocks))
