"""TLPs by registers: software at the PCIe port of a proxy without PCIe."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.arbiter import PacketArbiter
from dxpu.attach import PciePort
from dxpu.csr import Block, Field, Register, RegisterFile, RegisterPort, Rows
from dxpu.queue import PacketQueue
from dxpu.stream import ForwardRegister, PacketLayout, connect
from dxpu.tlp.header import Kind
from dxpu.tlp.types import HeaderCommon, TlpClass

__all__ = ["TlpMailbox", "mailbox_block"]


def mailbox_block(width):
    """Registers of a :class:`TlpMailbox`."""
    lanes = width // 32
    return Block("tlp", (
        Register("link", (
            Field("up", 1, "rw", doc="Software wants the link active. While the link is not "
                  "active, the mailbox drops the proxy's TLPs, the TLPs that wait here, and any "
                  "TLP of which a beat is appended meanwhile."),
            Field("active", 1, "ro", doc="The link is active. A link that goes down stays active "
                  "to the end of the TLP being sent."),
            Field("held", 1, "ro", doc="The link is held down: PERST# is asserted, or TLPs from "
                  "before the link went down have not all left.")),
            "State of the link."),
        Register("send", (
            Field("dwords", 5, "rw", doc="Dwords of the beat, 1 to the number of lanes."),
            Field("last", 1, "rw", offset=8, doc="The beat is the last of its TLP. The mailbox "
                  "sends the TLP as soon as the proxy's credits allow; a TLP whose Length exceeds "
                  "all credits waits until the link goes down.")),
            "A write appends the words in `out`, as a beat, to the TLP under construction."),
        Register("sent", (
            Field("count", 16, "ro", doc="TLPs taken by the proxy since reset; wraps."),
            Field("dropped", 16, "ro", doc="TLPs dropped since reset, because the memory was full "
                  "or the link was down; wraps.")),
            "Counts of TLPs to the proxy."),
        Register("received", (
            Field("dwords", 5, "ro", doc="Dwords of the beat in `in`; 0: no beat."),
            Field("last", 1, "ro", offset=8, doc="The beat is the last of its TLP.")),
            "Beat of a TLP from the proxy."),
        Register("next", (Field("strobe", 1, "pulse", doc="Discard the beat in `in`, and show the "
                 "next."),), "Takes a beat."),
        Rows("out", lanes, (Register("word", (Field("value", 32, "rw", doc="Bytes in wire order, "
             "the first byte least significant."),), "A dword to send."),), "Beat to be sent.",
             address=0x40),
        Rows("in", lanes, (Register("word", (Field("value", 32, "ro", doc="Bytes in wire order, "
             "the first byte least significant."),), "A dword received."),), "Beat received.",
             address=0x80),
    ), "TLPs sent and received by software.")


class TlpMailbox(wiring.Component):
    """Device side of a proxy's PCIe port, operated by software.

    Software builds a TLP beat by beat. The mailbox sends the TLP as a whole when the proxy's
    credits allow; TLPs behind a waiting TLP wait, too. TLPs from the proxy are kept, in the order
    in which they are taken, until software has read them; when the memory is full, the proxy waits.

    The mailbox takes class and payload of a TLP from its first dword, and checks nothing else. A
    TLP that claims more payload than the proxy ever grants waits until the link goes down.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of memory in each direction; a power of two. The largest TLP of the proxy must fit:
        552 bytes with 512 bytes of payload.

    Members
    -------
    port : In :class:`~dxpu.attach.PciePort`
    hold : In(1)
        Forces the link down, as if software had cleared ``up``.
    bus : In :class:`~dxpu.csr.RegisterPort`
        Registers of :func:`mailbox_block`.
    """

    def __init__(self, width, *, depth=128):
        self._width, self._depth = width, depth
        #: The register block (:class:`~dxpu.csr.Block`).
        self.block = mailbox_block(width)
        super().__init__({
            "port": In(PciePort(width)), "hold": In(1), "bus": In(RegisterPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.file = file = RegisterFile(self.block)
        wiring.connect(m, wiring.flipped(self.bus), file.bus)
        up = Signal()
        wanted = Signal()
        m.d.comb += [self.port.link_up.eq(up), file.link.active.eq(up),
                     file.link.held.eq(self.hold), wanted.eq(file.link.up & ~self.hold)]
        self._send(m, file, up, wanted)
        self._receive(m, file, up)
        return m

    def _send(self, m, file, up, wanted):
        m.submodules.sends = queue = PacketQueue(self._width, depth=self._depth, overflow="drop")
        first, made, spoilt = Signal(init=1), Signal(), Signal()
        beat = queue.i.payload
        m.d.comb += [
            queue.i.valid.eq(made),
            beat.data.eq(Cat(row.word.value for row in file.out)),
            beat.dwords.eq(file.send.dwords), beat.first.eq(first), beat.last.eq(file.send.last),
            beat.discard.eq(spoilt | ~wanted),
        ]
        # A beat is taken a cycle later if the memory is full.
        m.d.sync += made.eq(file.send.written | made & ~queue.i.ready)
        with m.If(made & queue.i.ready):
            m.d.sync += [first.eq(file.send.last), spoilt.eq((spoilt | ~wanted) & ~beat.last)]

        # Class of the TLP at the head, and its data in units of four dwords.
        m.submodules.head = head = ForwardRegister(PacketLayout(self._width))
        connect(m, queue.o, head.i)
        header = HeaderCommon(head.o.payload.data[:32])
        kind = Kind.of(m, header.fmt, header.type)
        length = Cat(header.length_low, header.length_high)
        units = Signal(range(257))
        m.d.comb += units.eq(Mux(header.fmt[1], Cat(length, length == 0) + 3 >> 2, 0))

        # There are credits for the head, now and since the last cycle. They do not become fewer.
        may, might = Signal(), Signal()
        begins, ends = Signal(), Signal()
        passing, within = Signal(), Signal()  # a TLP is being sent; a TLP is being sent or dropped
        o, rx = head.o, self.port.rx
        m.d.comb += [
            begins.eq(o.valid & might & up & wanted & ~passing),
            rx.payload.eq(o.payload),
            rx.valid.eq(o.valid & passing),
            o.ready.eq(Mux(passing, rx.ready, ~up)),
            ends.eq(o.valid & o.ready & o.payload.last),
        ]
        m.d.sync += [passing.eq(begins | passing & ~ends),
                     might.eq(o.valid & may & up & ~passing & ~begins)]
        with m.If(o.valid & o.ready):
            m.d.sync += within.eq(~o.payload.last)
        with m.If(~passing & ~begins & Mux(o.valid & o.ready, o.payload.last, ~within)):
            m.d.sync += up.eq(wanted)
        for cls in TlpClass:
            limits = getattr(self.port, f"rx_{cls.name.lower()}")
            headers, data = Signal(16), Signal(16)
            left = Signal(16)
            m.d.comb += left.eq(limits.data - data)
            with m.If(kind.cls == cls):
                m.d.comb += may.eq((headers != limits.header) & (units <= left))
                with m.If(begins):
                    m.d.sync += [headers.eq(headers + 1), data.eq(data + units)]
        sent, dropped = Signal(16), Signal(16)
        m.d.sync += [
            sent.eq(sent + (ends & passing)),
            dropped.eq(dropped + queue.stat_overflow + queue.stat_discarded + (ends & ~passing)),
        ]
        m.d.comb += [file.sent.count.eq(sent), file.sent.dropped.eq(dropped)]

    def _receive(self, m, file, up):
        port = wiring.flipped(self.port)
        arbiter = PacketArbiter(self._width, count=3)
        queue = PacketQueue(self._width, depth=self._depth)
        m.submodules.arbiter = ResetInserter(~up)(arbiter)
        m.submodules.receives = ResetInserter(~up)(queue)
        for source, i in zip((port.tx_p, port.tx_np, port.tx_cpl), arbiter.i, strict=True):
            # A TLP that began while the link was down, or was cut by the end of the link, is
            # dropped to its end.
            within, skip, take = Signal(), Signal(init=1), Signal()
            m.d.comb += [take.eq(up & ~(skip & within)), i.payload.eq(source.payload),
                         i.valid.eq(source.valid & take), source.ready.eq(i.ready | ~take)]
            with m.If(source.valid & source.ready):
                m.d.sync += within.eq(~source.payload.last)
            with m.If(~up | ~within):
                m.d.sync += skip.eq(~up)
        connect(m, arbiter.o, queue.i)
        beat = queue.o.payload
        m.d.comb += [
            file.received.dwords.eq(Mux(queue.o.valid, beat.dwords, 0)),
            file.received.last.eq(queue.o.valid & beat.last),
            queue.o.ready.eq(file.next.strobe),
        ]
        rows = getattr(file, "in")
        for n, row in enumerate(rows):
            m.d.comb += row.word.value.eq(beat.data.word_select(n, 32))
