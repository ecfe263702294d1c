"""Edge between a proxy and a data link layer with a clock of its own.

Ref: PCIe Base 5.0, 2.9.1 (a link that goes down), 6.6.1 (reset); CEM 5.0, 2.2 (PERST#)
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from dxpu.cdc import AsyncPacketQueue, AsyncQueue, EventCrossing
from dxpu.stream import check_width, connect

from .edge_far import Far
from .edge_near import CLASSES, Grant, Near
from .port import PciePort

__all__ = ["PcieEdge"]


class PcieEdge(wiring.Component):
    """PCIe port of a proxy in the clock domain of a data link layer (DLL).

    The near side is the proxy, in ``sync``; the far side is the DLL, in ``domain``. TLPs keep their
    order in each stream, and none passes a posted request. No TLP is cut: one that cannot be
    completed ends with ``discard``.

    A link life lasts from when the DLL raises ``link.link_up`` until it lowers it. The DLL may
    raise it while ``ready`` is 1. ``ready`` rises when both sides have drained, and at least
    ``settle`` cycles after the last life. While ``reset`` is 1 the DLL must lower ``link_up`` as
    soon as it can, and still take what is on ``link.tx``. When the link goes down:

    - TLPs that the DLL has passed whole reach the proxy, which drops them, so their credits return.
      A TLP that the DLL has begun gets an end with ``discard``; its rest must not come.
    - TLPs of the proxy that have begun to pass are passed whole; the DLL takes and drops them.
      Others are dropped whole here.

    PERST# takes the link down for the proxy even while the clock of the DLL stands still. Credit
    limits are totals since the reset of both domains, independent of the link; they arrive late,
    never early.

    Both domains must be reset together by one asynchronous cause. Latency of a beat: one cycle of
    its domain and three to four of the other; from a far side of 32 bits one more of ``sync``. A
    TLP of the proxy that is no posted request takes one more of ``sync``. Throughput: one beat per
    cycle of the slower domain; with a far side of 32 bits at most one dword per cycle of ``sync``.

    Parameters
    ----------
    width : int
        Data bits per beat of ``port``.
    link_width : int
        Data bits per beat of ``link``: ``width``, or 32.
    settle : int
        Least cycles of ``sync`` for which the link is down; 64 us for a
        :class:`~dxpu.proxy.host.HostProxy`.
    domain : str
        Clock domain of the DLL.

    Members
    -------
    port : In :class:`PciePort`
        Port to the proxy. ``rx`` may end a TLP, or bring whole ones, after ``link_up`` has fallen.
    link : Out :class:`PciePort`
        Port to the DLL, in ``domain``.
    reset : Out(1)
        The link must go down and stay down; in ``domain``.
    ready : Out(1)
        ``link.link_up`` may be 1; in ``domain``.
    perst : In(1)
        PERST# is asserted; asynchronous. A pulse shorter than two cycles of a domain may be missed.
    perst_sync : Out(1)
        The same, synchronised to ``sync``.
    stat_dropped : Out(3)
        Pulses: a posted request, a non-posted request, a completion of the proxy was dropped
        because the link was down.
    """

    #: Beats of each queue: the depth of a distributed RAM.
    DEPTH = 16

    def __init__(self, width, *, link_width, settle, domain="pcie"):
        if link_width not in (32, check_width(width)):
            raise ValueError(f"link_width must be 32 or {width}, not {link_width!r}")
        if not isinstance(settle, int) or settle < 32:
            raise ValueError(f"settle must be an integer of at least 32, not {settle!r}")
        self._width, self._link_width = width, link_width
        self._settle, self._domain = settle, domain
        super().__init__({
            "port": In(PciePort(width)),
            "link": Out(PciePort(link_width)),
            "reset": Out(1),
            "ready": Out(1),
            "perst": In(1),
            "perst_sync": Out(1),
            "stat_dropped": Out(3),
        })

    def elaborate(self, platform):
        m = Module()
        queues = {"i_domain": "sync", "o_domain": self._domain}
        m.submodules.near = near = Near(self._width, self._link_width, self._settle)
        m.submodules.far = far = DomainRenamer(self._domain)(Far(self._link_width))

        m.submodules.rx = rx = AsyncPacketQueue(
            self._link_width, depth=self.DEPTH, i_domain=self._domain, o_domain="sync")
        connect(m, far.rx, rx.i)
        connect(m, rx.o, near.rx)
        for name in CLASSES:
            m.submodules[f"tx_{name}"] = tx = AsyncPacketQueue(
                self._link_width, depth=self.DEPTH, **queues)
            connect(m, getattr(near, f"tx_{name}"), tx.i)
            connect(m, tx.o, getattr(far, f"tx_{name}"))
        m.submodules.credits = credits = AsyncQueue(Grant, depth=4, **queues)
        connect(m, near.grant, credits.i)
        connect(m, credits.o, far.grant)

        m.submodules.posted_taken = posted_taken = EventCrossing(
            i_domain=self._domain, o_domain="sync", bits=Near.IN_FLIGHT_BITS)
        m.d.comb += [posted_taken.i.eq(far.posted_taken), near.posted_taken.eq(posted_taken.o)]
        m.submodules.dll_up = FFSynchronizer(far.dll_up, near.dll_up)
        m.submodules.near_perst = FFSynchronizer(self.perst, near.perst)
        m.submodules.far_perst = FFSynchronizer(self.perst, far.perst, o_domain=self._domain)
        m.submodules.near_busy = FFSynchronizer(
            near.busy, far.near_busy, o_domain=self._domain, init=1)
        m.submodules.force_down = FFSynchronizer(
            near.force_down, far.force_down, o_domain=self._domain)

        wiring.connect(m, wiring.flipped(self.port), near.port)
        wiring.connect(m, far.link, wiring.flipped(self.link))
        m.d.comb += [
            self.perst_sync.eq(near.perst), self.stat_dropped.eq(near.stat_dropped),
            self.reset.eq(far.reset), self.ready.eq(far.ready),
        ]
        return m
