"""A soft GPU between a mailbox and the parts of a proxy's PCIe port: class queues and credits."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import CreditLimits, Egress, PciePort, connect_egress
from dxpu.endpoint.gpu import SoftGpu
from dxpu.queue import PacketQueue
from dxpu.stream import PacketLayout, check_width, connect
from dxpu.tlp.types import TlpClass
from dxpu_sim.pcie.mailbox import CLASSES, MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock

__all__ = ["EndpointBench"]


def class_of(m, dword):
    """Class of a TLP by its first dword (PCIe Base 5.0, 2.2.1), as a signal driven in ``m``."""
    cls = Signal(TlpClass)
    with m.Switch(dword[:8]):
        with m.Case("01-00000", "0-110---"):
            m.d.comb += cls.eq(TlpClass.P)
        with m.Case("---0101-"):
            m.d.comb += cls.eq(TlpClass.CPL)
        with m.Default():
            m.d.comb += cls.eq(TlpClass.NP)
    return cls


def units_of(dword):
    """Units of 16 bytes of data in a TLP with this first dword."""
    length = Cat(dword[24:32], dword[16:18])
    return Mux(dword[6], (Cat(length, length == 0) + 3)[2:], 0)


class EndpointBench(wiring.Component):
    """Mailbox, soft GPU, and the equivalent of a proxy's PCIe port; has its own clock.

    TLPs to the GPU pass an :class:`~dxpu.attach.Egress`. TLPs of the GPU go into a queue for each
    class. Credits return when a TLP leaves its queue; they are the credit limits, and are policed.

    Parameters
    ----------
    width : int
        Data bits per beat.
    gpu : dict
        Further arguments of :class:`~dxpu.endpoint.gpu.SoftGpu`.

    Members
    -------
    host : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
    hot_reset : 1
        Level.
    headers0, ..., units0, ... : 16
        Initial credits of the GPU for each class: TLPs, and units of 16 bytes. Constant from before
        the end of the reset.
    link : 1
        ``link_up`` of the GPU.
    overrun : 4
        Sticky. Bit n: a TLP of class n was sent without credits. Bit 3: a TLP was sent while the
        link was down.
    """

    #: Depth of a queue, in beats.
    DEPTH = 512

    def __init__(self, width=64, *, gpu=None):
        super().__init__({"host": In(MailboxSignature()), "hot_reset": In(1), "link": Out(1),
                          **{f"{what}{n}": In(16) for what in ("headers", "units")
                             for n in range(3)},
                          "overrun": Out(4)})
        self._width = check_width(width)
        self._gpu = SoftGpu(width, **(gpu or {}))

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.submodules.mailbox = mailbox = TlpPort(self._width, seed=1)
        wiring.connect(m, wiring.flipped(self.host), mailbox.py)
        m.submodules.gpu = gpu = self._gpu
        port = PciePort(self._width).create()
        wiring.connect(m, port, gpu.port)
        m.d.comb += [gpu.reset.eq(self.hot_reset), self.link.eq(gpu.port.link_up)]
        self._into_gpu(m, mailbox, port)
        self._out_of_gpu(m, mailbox, port)
        return m

    def _into_gpu(self, m, mailbox, port):
        m.submodules.egress = egress = Egress(self._width, depth=self.DEPTH)
        beat = mailbox.o.payload
        cls, held = class_of(m, beat.data), Signal(TlpClass)
        with m.If(mailbox.o.valid & beat.first):
            m.d.sync += held.eq(cls)
        m.d.comb += [
            *(egress.i.payload[k].eq(beat[k]) for k, _ in PacketLayout(self._width)),
            egress.i.payload.meta.eq(Mux(beat.first, cls, held)),
            egress.i.valid.eq(mailbox.o.valid), mailbox.o.ready.eq(egress.i.ready),
        ]
        connect_egress(m, egress, port)

    def _out_of_gpu(self, m, mailbox, port):
        rx = port.rx
        cls, held, now = class_of(m, rx.payload.data), Signal(TlpClass), Signal(TlpClass)
        begins = rx.valid & rx.ready & rx.payload.first
        with m.If(begins):
            m.d.sync += held.eq(cls)
        m.d.comb += now.eq(Mux(rx.payload.first, cls, held))
        with m.If(rx.valid & ~self.link):
            m.d.sync += self.overrun[3].eq(1)
        for n, name in enumerate(CLASSES):
            m.submodules[f"queue_{name}"] = queue = PacketQueue(self._width, depth=self.DEPTH)
            mine, into = now == TlpClass(n), getattr(mailbox, f"i_{name}")
            m.d.comb += [queue.i.payload.eq(rx.payload), queue.i.valid.eq(rx.valid & mine)]
            with m.If(mine):
                m.d.comb += rx.ready.eq(queue.i.ready)
            connect(m, queue.o, into)
            limits, left, used = (Signal(CreditLimits, name=f"{what}_{name}")
                                  for what in ("limits", "left", "used"))
            m.d.comb += [
                limits.header.eq(getattr(self, f"headers{n}") + left.header),
                limits.data.eq(getattr(self, f"units{n}") + left.data),
                getattr(port, f"rx_{name}").eq(limits),
            ]
            with m.If(into.valid & into.ready & into.payload.first):
                m.d.sync += [left.header.eq(left.header + 1),
                             left.data.eq(left.data + units_of(into.payload.data))]
            with m.If(begins & mine):
                header, units = used.header + 1, used.data + units_of(rx.payload.data)
                m.d.sync += [used.header.eq(header), used.data.eq(units)]
                with m.If((limits.header - header)[15] | (limits.data - units)[15]):
                    m.d.sync += self.overrun[n].eq(1)
