"""Half of a :class:`~.edge.PcieEdge` on the side of the data link layer (DLL)."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, connect

from .edge_near import CLASSES, Grant
from .port import PciePort

__all__ = ["Far"]


class Far(wiring.Component):
    """Begins and ends link lives as the DLL does, and ends a TLP that the DLL leaves incomplete.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    link, reset, ready
        Those of the edge.
    dll_up : Out(1)
        The link is up. It stays 1 until ``near_busy`` is 1. A register.
    perst : In(1)
        PERST# is asserted.
    near_busy, force_down : In(1)
        ``busy`` and ``force_down`` of :class:`~.edge_near.Near`.
    rx : Out packet stream
        TLPs from the DLL.
    tx_p, tx_np, tx_cpl : In packet streams
        TLPs to the DLL; they pass at once.
    posted_taken : Out(1)
        Pulse: the DLL has taken a posted request.
    grant : In stream of :class:`~.edge_near.Grant`
        Credit limits from the proxy.
    """

    #: Cycles without a beat after which the queues to the DLL are empty. Beats that were written
    #: before ``near_busy`` fell may come later than its fall by the delay of a queue less that of
    #: a synchroniser.
    QUIET = 8

    def __init__(self, width):
        super().__init__({
            "link": Out(PciePort(width)),
            "reset": Out(1),
            "ready": Out(1),
            "dll_up": Out(1),
            "perst": In(1),
            "near_busy": In(1),
            "force_down": In(1),
            "rx": Out(PacketSignature(width)),
            **{f"tx_{name}": In(PacketSignature(width)) for name in CLASSES},
            "posted_taken": Out(1),
            "grant": In(stream.Signature(Grant)),
        })
        self._width = width

    def elaborate(self, platform):
        m = Module()
        link = self.link
        for name in CLASSES:
            connect(m, wiring.flipped(getattr(self, f"tx_{name}")), getattr(link, f"tx_{name}"))
        m.d.comb += self.posted_taken.eq(
            link.tx_p.valid & link.tx_p.ready & link.tx_p.payload.last)

        in_tlp, passing, ending = Signal(), Signal(), Signal()
        quiet = Signal(range(self.QUIET))
        can_begin = Signal()
        m.d.comb += [
            can_begin.eq(~self.near_busy & ~in_tlp & (quiet == self.QUIET - 1)),
            passing.eq(self.dll_up & ~ending & link.link_up),
            self.reset.eq(self.perst | self.force_down),
            self.ready.eq(Mux(self.dll_up, ~ending & link.link_up, can_begin) & ~self.reset),
        ]
        arriving = Cat(getattr(self, f"tx_{name}").valid for name in CLASSES)
        with m.If(self.near_busy | arriving.any()):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != self.QUIET - 1):
            m.d.sync += quiet.eq(quiet + 1)

        # `dll_up` and `near_busy` handshake in four phases: up, up, down, down.
        with m.If(~self.dll_up):
            m.d.sync += [self.dll_up.eq(can_begin & link.link_up), ending.eq(0)]
        with m.Else():
            m.d.sync += ending.eq(ending | ~link.link_up)
            with m.If(self.near_busy & (ending | ~link.link_up)):
                m.d.sync += self.dll_up.eq(0)

        self._receive(m, in_tlp, passing)
        m.d.comb += self.grant.ready.eq(1)
        for n, name in enumerate(CLASSES):
            limits = getattr(link, f"rx_{name}")
            with m.If(self.grant.valid & (self.grant.payload.number == n)):
                m.d.sync += limits.eq(self.grant.payload.limits)
        return m

    def _receive(self, m, in_tlp, passing):
        source, abort = self.link.rx, Signal()
        m.d.comb += [
            abort.eq(in_tlp & ~passing),
            self.rx.payload.eq(source.payload),
            self.rx.valid.eq(source.valid & passing | abort),
            source.ready.eq(self.rx.ready & passing),
        ]
        with m.If(abort):
            m.d.comb += [
                self.rx.payload.dwords.eq(1), self.rx.payload.first.eq(0),
                self.rx.payload.last.eq(1), self.rx.payload.discard.eq(1),
            ]
        with m.If(self.rx.valid & self.rx.ready):
            m.d.sync += in_tlp.eq(~self.rx.payload.last)
