"""The half of a :class:`~.edge.PcieEdge` on the side of the data link layer (DLL)."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, connect

from .edge_near import CLASSES, Grant
from .port import PciePort

__all__ = ["Far"]


class Far(wiring.Component):
    """Begins and ends lives of the link as the DLL wants, and ends a TLP that it leaves open.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    link, reset, ready
        As of the edge.
    live : Out(1)
        The link is up. It falls no sooner than it was seen. A register.
    perst, held, lost : In(1)
        PERST#, and what :class:`~.edge_near.Near` says.
    rx : Out packet stream
        From the DLL.
    tx_p, tx_np, tx_cpl : In packet streams
        To the DLL, as they come.
    taken : Out(1)
        Pulse: it has taken a posted request.
    grant : In stream of :class:`~.edge_near.Grant`
    """

    #: Cycles without a beat after which the queues to the DLL are empty: what was written long
    #: before ``held`` fell is seen as long after it as a queue is later than a synchroniser.
    QUIET = 8

    def __init__(self, width):
        super().__init__({
            "link": Out(PciePort(width)),
            "reset": Out(1),
            "ready": Out(1),
            "live": Out(1),
            "perst": In(1),
            "held": In(1),
            "lost": In(1),
            "rx": Out(PacketSignature(width)),
            **{f"tx_{name}": In(PacketSignature(width)) for name in CLASSES},
            "taken": Out(1),
            "grant": In(stream.Signature(Grant)),
        })
        self._width = width

    def elaborate(self, platform):
        m = Module()
        link = self.link
        for name in CLASSES:
            connect(m, wiring.flipped(getattr(self, f"tx_{name}")), getattr(link, f"tx_{name}"))
        m.d.comb += self.taken.eq(link.tx_p.valid & link.tx_p.ready & link.tx_p.payload.last)

        open, passing, over = Signal(), Signal(), Signal()
        quiet = Signal(range(self.QUIET))
        clear = Signal()
        m.d.comb += [
            clear.eq(~self.held & ~open & (quiet == self.QUIET - 1)),
            passing.eq(self.live & ~over & link.link_up),
            self.reset.eq(self.perst | self.lost),
            self.ready.eq(Mux(self.live, ~over & link.link_up, clear) & ~self.reset),
        ]
        with m.If(self.held | Cat(getattr(self, f"tx_{name}").valid for name in CLASSES).any()):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != self.QUIET - 1):
            m.d.sync += quiet.eq(quiet + 1)

        # `live` and `held` each wait for the other: up, up, down, down.
        with m.If(~self.live):
            m.d.sync += [self.live.eq(clear & link.link_up), over.eq(0)]
        with m.Else():
            m.d.sync += over.eq(over | ~link.link_up)
            with m.If(self.held & (over | ~link.link_up)):
                m.d.sync += self.live.eq(0)

        self._receive(m, open, passing)
        m.d.comb += self.grant.ready.eq(1)
        for n, name in enumerate(CLASSES):
            limits = getattr(link, f"rx_{name}")
            with m.If(self.grant.valid & (self.grant.payload.number == n)):
                m.d.sync += limits.eq(self.grant.payload.limits)
        return m

    def _receive(self, m, open, passing):
        source, ends = self.link.rx, Signal()
        m.d.comb += [
            ends.eq(open & ~passing),
            self.rx.payload.eq(source.payload),
            self.rx.valid.eq(source.valid & passing | ends),
            source.ready.eq(self.rx.ready & passing),
        ]
        with m.If(ends):
            m.d.comb += [
                self.rx.payload.dwords.eq(1), self.rx.payload.first.eq(0),
                self.rx.payload.last.eq(1), self.rx.payload.discard.eq(1),
            ]
        with m.If(self.rx.valid & self.rx.ready):
            m.d.sync += open.eq(~self.rx.payload.last)
