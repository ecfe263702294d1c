"""A mailbox on each side and queues between: the first test of the PCIe-side models."""

from amaranth import *
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In

from dxpu.stream import PacketLayout, check_width
from dxpu_sim.pcie.mailbox import CLASSES, MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock

__all__ = ["Passthrough"]


class ClassQueues(Elaboratable):
    """Takes the TLPs of ``source`` and offers them to the class inputs of ``sink``, in order.

    All classes share one queue, so a stalled class stops the others, and the order cannot be wrong.
    """

    def __init__(self, width, source, sink, *, depth, broken=False):
        self._layout = PacketLayout(width)
        self._source = source
        self._sink = sink
        self._depth = depth
        self._broken = broken

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFOBuffered(width=self._layout.size,
                                                           depth=self._depth)
        head = self._layout(queue.r_data)
        cls, held = Signal(2), Signal(2)
        m.d.comb += [
            queue.w_data.eq(self._source.payload),
            queue.w_en.eq(self._source.valid),
            self._source.ready.eq(queue.w_rdy),
            cls.eq(held),
        ]
        with m.If(head.first):
            # Fmt in bits 7:5, Type in bits 4:0 of byte 0 (PCIe Base 5.0, 2.2.1); no prefixes here.
            with m.Switch(head.data[:8]):
                with m.Case("01-00000", "0-110---"):
                    m.d.comb += cls.eq(0)
                with m.Case("---0101-"):
                    m.d.comb += cls.eq(2)
                with m.Default():
                    m.d.comb += cls.eq(1)
        with m.If(queue.r_rdy & queue.r_en):
            m.d.sync += held.eq(cls)
        for n, name in enumerate(CLASSES):
            output = getattr(self._sink, f"i_{name}")
            m.d.comb += [output.payload.eq(head), output.valid.eq(queue.r_rdy & (cls == n))]
            if self._broken:
                m.d.comb += output.payload.dwords.eq(0)
            with m.If(cls == n):
                m.d.comb += queue.r_en.eq(output.ready)
        return m


class Passthrough(wiring.Component):
    """Host mailbox and device mailbox, connected by a queue in each direction; has its own clock.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats per queue.
    broken : bool
        Break a stream rule towards the host, for the test of the monitor.

    Members
    -------
    host, device : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
    """

    def __init__(self, width=64, *, depth=128, broken=False):
        super().__init__({"host": In(MailboxSignature()), "device": In(MailboxSignature())})
        self._width = check_width(width)
        self._depth = depth
        self._broken = broken

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.submodules.host = host = TlpPort(self._width, seed=1)
        m.submodules.device = device = TlpPort(self._width, seed=2)
        wiring.connect(m, wiring.flipped(self.host), host.py)
        wiring.connect(m, wiring.flipped(self.device), device.py)
        m.submodules.down = ClassQueues(self._width, host.o, device, depth=self._depth)
        m.submodules.up = ClassQueues(self._width, device.o, host, depth=self._depth,
                                      broken=self._broken)
        return m
