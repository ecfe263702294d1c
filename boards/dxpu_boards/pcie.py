"""The PCIe side of a host proxy on a board: TLPs by software, behind the edge for a later PCIe
PHY."""

from amaranth import *
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In

from dxpu.attach import PcieEdge, PciePort
from dxpu.console import TlpMailbox
from dxpu.console.tlp_mailbox import mailbox_block
from dxpu.csr import (
    Block, Field, Register, RegisterCrossing, RegisterFile, RegisterPort, connect_ports,
)

__all__ = ["LINK_WIDTH", "Upstream", "pcie_block", "upstream_blocks"]

#: Bits per beat of a data link layer at 62.5 MHz: 2 Gb/s, the net rate of 2.5 GT/s with 8b/10b.
LINK_WIDTH = 32
#: Shortest time for which an upstream link stays down, in seconds. Ref: docs/reference/ports.md
SETTLE = 64e-6


def pcie_block():
    """Registers of the edge."""
    return Block("pcie", (
        Register("state", (
            Field("perst", 1, "ro", doc="PERST# is asserted."),
            Field("up", 1, "ro", doc="The proxy's link is up."),
            Field("downs", 16, "ro", offset=16, doc="Times that the link went down since reset; "
                  "wraps.")),
            "Link, as the proxy sees it."),
        Register("dropped", (Field("count", 16, "ro", doc="TLPs of the proxy dropped while the "
                 "link was down; wraps."),), "TLPs dropped at the edge."),
    ), "Edge between proxy and PCIe.")


def upstream_blocks(board, width):
    """Register blocks of an :class:`Upstream`, by name."""
    if board.pcie_clock is None:
        return {"tlp": mailbox_block(width)}
    return {"tlp": mailbox_block(LINK_WIDTH), "pcie": pcie_block()}


class Upstream(wiring.Component):
    """A :class:`~dxpu.console.TlpMailbox` at the upstream port of a host.

    On boards with PCIe the mailbox stands in for the data link layer: it is in the domain ``pcie``,
    behind a :class:`~dxpu.attach.PcieEdge`, which PERST# takes down. A data link layer would
    replace the mailbox and keep the edge.

    Parameters
    ----------
    board : Board
    width : int
        Data bits per beat of the proxy.
    hz : number
        Frequency of ``sync``, in hertz.

    Members
    -------
    port : In :class:`~dxpu.attach.PciePort`
    tlp, pcie : In :class:`~dxpu.csr.RegisterPort`
        Registers of :func:`upstream_blocks`; ``pcie`` only on boards with PCIe.
    """

    def __init__(self, board, width, *, hz):
        self._board, self._width, self._hz = board, width, hz
        #: Register blocks, by name.
        self.blocks = upstream_blocks(board, width)
        super().__init__({"port": In(PciePort(width)),
                          **{name: In(RegisterPort()) for name in self.blocks}})

    def elaborate(self, platform):
        m = Module()
        if self._board.pcie_clock is None:
            m.submodules.mailbox = mailbox = TlpMailbox(self._width)
            wiring.connect(m, wiring.flipped(self.port), mailbox.port)
            connect_ports(m, wiring.flipped(self.tlp), mailbox.bus)
            return m

        domain = self._board.pcie_clock.domain
        m.submodules.perst = perst = io.Buffer("i", platform.request("perst", 0, dir="-"))
        m.submodules.edge = edge = PcieEdge(
            self._width, link_width=LINK_WIDTH, settle=round(self._hz * SETTLE), domain=domain)
        wiring.connect(m, wiring.flipped(self.port), edge.port)
        m.submodules.mailbox = mailbox = DomainRenamer(domain)(
            TlpMailbox(LINK_WIDTH, depth=256))
        wiring.connect(m, edge.link, mailbox.port)
        m.d.comb += [edge.perst.eq(perst.i), mailbox.hold.eq(~edge.ready)]
        m.submodules.crossing = crossing = RegisterCrossing(domain=domain)
        connect_ports(m, wiring.flipped(self.tlp), crossing.bus)
        connect_ports(m, crossing.far, mailbox.bus)
        self._registers(m, edge)
        return m

    def _registers(self, m, edge):
        m.submodules.file = file = RegisterFile(self.blocks["pcie"])
        connect_ports(m, wiring.flipped(self.pcie), file.bus)
        before, downs, dropped = Signal(), Signal(16), Signal(16)
        # A cycle later: the drop of a TLP that finds the link down at its end is known late in the
        # cycle.
        found = Signal.like(edge.stat_dropped)
        up = edge.port.link_up
        m.d.sync += [
            before.eq(up), downs.eq(downs + (before & ~up)),
            found.eq(edge.stat_dropped), dropped.eq(dropped + sum(found)),
        ]
        m.d.comb += [
            file.state.perst.eq(edge.perst_sync), file.state.up.eq(up),
            file.state.downs.eq(downs), file.dropped.count.eq(dropped),
        ]
