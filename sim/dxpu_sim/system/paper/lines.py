"""Modelled lines: a gate for packets with the rate of a line, and a length of Ethernet."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.axi import AxiReceiver, AxiStream, AxiTransmitter
from dxpu.stream import PacketLayout, PacketSignature, connect
from dxpu_sim.fabric.chance import Chance

__all__ = ["FRACTION", "Pacer", "Wire"]

#: Parts of a byte in which rates are given.
FRACTION = 256


class Pacer(wiring.Component):
    """Packets pass at the rate of a line; each takes some bytes on the line beside its own.

    The line may be a beat behind, for a rate that is exact on average; an idle line saves nothing
    up. Combinational, but for the count of bytes that are due.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rate : int
        Bytes of a cycle, in parts of :data:`FRACTION`.
    overhead, least : int
        Bytes of a packet beside its own; bytes of the smallest packet.

    Members
    -------
    i, o : packet streams
    total : Out(48)
        Bytes of all packets on the line.
    """

    def __init__(self, width, *, rate, overhead, least=0):
        self._width, self._rate, self._overhead, self._least = width, rate, overhead, least
        super().__init__({"i": In(PacketSignature(width)), "o": Out(PacketSignature(width)),
                          "total": Out(48)})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        # Parts of a byte that the line has still to send.
        behind, due = Signal(24), Signal(24)
        size, whole, took = Signal(16), Signal(16), Signal(16)
        may, moved = Signal(), Signal()
        m.d.comb += [
            due.eq(behind + Mux(moved, took * FRACTION, 0)),
            may.eq(behind <= self._rate + self._width // 8 * FRACTION),
            o.payload.eq(i.payload), o.valid.eq(i.valid & may), i.ready.eq(o.ready & may),
            moved.eq(o.valid & o.ready),
            whole.eq(size + (i.payload.dwords << 2)),
            took.eq((i.payload.dwords << 2) + Mux(
                i.payload.last, self._overhead
                + Mux(whole < self._least, self._least - whole, 0), 0)),
        ]
        m.d.sync += behind.eq(Mux(due > self._rate, due - self._rate, 0))
        with m.If(moved):
            m.d.sync += [
                size.eq(Mux(i.payload.last, 0, whole)),
                self.total.eq(self.total + took),
            ]
        return m


class Wire(wiring.Component):
    """One direction of an Ethernet between two MACs: its rate, its delay, its losses.

    The sending MAC is not held back but for the rate. Frames come out ``delay`` cycles later, and
    cannot be held back: cable, FEC and a switch without other users.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rate : int
        Bytes of a cycle, in parts of :data:`FRACTION`.
    most : int
        Most cycles of ``delay``; a power of two.
    seed : int
        Of the losses.

    Members
    -------
    i, o : AXI4-Streams
    delay : In(16)
        Cycles, 2 or more and less than ``most``; may change while nothing is under way.
    loss : In(17)
        Probability of a loss of each frame, in 1/65536.
    frames, lost : Out(32)
    total : Out(48)
        Bytes on the line, with preamble, FCS and gap.
    """

    #: Bytes of a frame on the line beside its own: preamble and delimiter, FCS, least gap.
    OVERHEAD = 8 + 4 + 12
    #: Bytes of the smallest frame without FCS.
    SMALLEST = 60

    def __init__(self, width, *, rate, most=4096, seed=1):
        self._width, self._rate, self._most, self._seed = width, rate, most, seed
        super().__init__({
            "i": In(AxiStream(width, user=True)),
            "o": Out(AxiStream(width, user=True, ready=False)),
            "delay": In(16), "loss": In(17),
            "frames": Out(32), "lost": Out(32), "total": Out(48),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = AxiReceiver(self._width, user=True)
        m.submodules.transmitter = transmitter = AxiTransmitter(self._width, user=True)
        m.submodules.pacer = pacer = Pacer(self._width, rate=self._rate, overhead=self.OVERHEAD,
                                           least=self.SMALLEST)
        m.submodules.chance = chance = Chance(seed=self._seed)
        wiring.connect(m, wiring.flipped(self.i), receiver.axis)
        connect(m, receiver.o, pacer.i)
        beat = PacketLayout(self._width)
        m.submodules.line = line = memory.Memory(
            shape=data.StructLayout({"beat": beat, "valid": 1}), depth=self._most, init=[])
        write, read = line.write_port(), line.read_port(transparent_for=())
        at, dropped, drop = Signal(range(self._most)), Signal(), Signal()
        sent = pacer.o
        moved = sent.valid & sent.ready
        m.d.comb += [
            sent.ready.eq(1),
            drop.eq(Mux(sent.payload.first, chance.value[:16] < self.loss, dropped)),
            write.en.eq(1), write.addr.eq(at), read.addr.eq(at + 1 - self.delay),
            write.data.beat.eq(sent.payload), write.data.valid.eq(moved & ~drop),
            transmitter.i.payload.eq(read.data.beat), transmitter.i.valid.eq(read.data.valid),
            transmitter.axis.tready.eq(1),
            *(getattr(self.o, name).eq(getattr(transmitter.axis, name))
              for name in ("tdata", "tkeep", "tlast", "tuser", "tvalid")),
            self.total.eq(pacer.total),
        ]
        m.d.sync += at.eq(at + 1)
        with m.If(moved):
            m.d.sync += dropped.eq(drop)
        with m.If(moved & sent.payload.last):
            m.d.sync += [self.frames.eq(self.frames + 1), self.lost.eq(self.lost + drop)]
        return m
