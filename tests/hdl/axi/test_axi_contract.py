"""Contracts of dxpu.axi: rules of AXI that hold whatever the other side does."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.axi import AxiLiteBridge, AxiReceiver, AxiTransmitter
from dxpu.axi.lite import AxiLite
from dxpu.axi.mac import FrameSender
from dxpu.csr import RegisterPort
from dxpu.ethernet.receive import RxStatus, RxWord
from dxpu.stream import PacketLayout
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

WIDTH = 64


def stable(m, claim, valid, ready, *payload):
    """``claim`` (Assert, or Assume) that an offer stays as it is until it is taken."""
    waits = Signal()
    m.d.sync += waits.eq(valid & ~ready)
    with m.If(waits):
        m.d.comb += claim(valid)
    for value in payload:
        before = Signal.like(value)
        m.d.sync += before.eq(value)
        with m.If(waits):
            m.d.comb += claim(value == before)


class RoundTripContract(wiring.Component):
    """A packet that becomes an AXI4-Stream and then a packet again is the same, at all times; one
    that was discarded still is."""

    i: In(PacketLayout(WIDTH))
    valid: In(1)
    ready: In(1)

    def __init__(self, transmitter=AxiTransmitter, receiver=AxiReceiver):
        super().__init__()
        self._transmitter = transmitter(WIDTH, user=True)
        self._receiver = receiver(WIDTH, user=True)

    def elaborate(self, platform):
        m = Module()
        m.submodules.transmitter = transmitter = self._transmitter
        m.submodules.receiver = receiver = self._receiver
        wiring.connect(m, transmitter.axis, receiver.axis)
        beat, opened = self.i, Signal()
        m.d.comb += [
            transmitter.i.payload.eq(beat), transmitter.i.valid.eq(self.valid),
            receiver.o.ready.eq(self.ready),
            Assume(beat.first == ~opened),
            Assume(~beat.discard | beat.last),
            Assume((beat.dwords == WIDTH // 32) | (beat.last & (beat.dwords == 1))),
            Assert(receiver.o.valid == self.valid),
            Assert(transmitter.i.ready == self.ready),
            Assert(~receiver.not_dwords),
        ]
        with m.If(self.valid & self.ready):
            m.d.sync += opened.eq(~beat.last)
        with m.If(self.valid):
            m.d.comb += [Assert(receiver.o.payload[name] == beat[name])
                         for name in ("data", "dwords", "first", "last", "discard")]
            m.d.comb += Assert(~receiver.broken)
        return m


class SenderContract(wiring.Component):
    """Inside a frame ``tvalid`` does not fall, an offer stays, and frames leave with the beats with
    which they came, whatever gaps and stalls there are."""

    valid: In(1)
    ready: In(1)
    last: In(1)
    data: In(2)

    def __init__(self, sender=FrameSender):
        super().__init__()
        self._sender = sender(WIDTH, depth=4, ahead=1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender = sender = self._sender
        axis, beat = sender.axis, sender.i.payload
        sent, left, begins = Signal(2), Signal(2), Signal(init=1)
        word = Signal(RxWord(WIDTH))
        m.d.comb += [
            word.data.eq(self.data), word.dwords.eq(2), word.first.eq(begins),
            word.last.eq(self.last), word.status.eq(RxStatus.GOOD),
            beat.eq(word), sender.i.valid.eq(self.valid), axis.tready.eq(self.ready),
            # Beats count, so that they must leave in that order; no frame is too large.
            Assume(self.data == sent),
        ]
        length = Signal(range(5))
        with m.If(sender.i.valid & sender.i.ready):
            m.d.sync += [sent.eq(sent + 1), begins.eq(self.last),
                         length.eq(Mux(self.last, 0, length + 1))]
        m.d.comb += Assume((length < 3) | self.last)
        stable(m, Assume, self.valid, sender.i.ready, self.last)
        stable(m, Assert, axis.tvalid, axis.tready, axis.tlast, axis.tdata[:2])
        inside = Signal()
        with m.If(axis.tvalid & axis.tready):
            m.d.sync += [inside.eq(~axis.tlast), left.eq(left + 1)]
        with m.If(inside):
            m.d.comb += Assert(axis.tvalid)
        with m.If(axis.tvalid):
            m.d.comb += [Assert(axis.tdata[:2] == left), Assert(~axis.tuser),
                         Assert(axis.tkeep.all())]
        return m


class BridgeContract(wiring.Component):
    """Responses stay until they are taken, come after their transactions, and there is one for
    each; requests to registers keep the rules of streams, one at a time; no output follows an input
    in the same cycle."""

    axil: In(AxiLite())
    answer: In(RegisterPort().flip())

    def __init__(self, bridge=AxiLiteBridge):
        super().__init__()
        self._bridge = bridge()

    def elaborate(self, platform):
        m = Module()
        m.submodules.bridge = bridge = self._bridge
        wiring.connect(m, wiring.flipped(self.axil), bridge.axil)
        wiring.connect(m, bridge.bus, wiring.flipped(self.answer))
        axil, request, response = bridge.axil, bridge.bus.request, bridge.bus.response
        stable(m, Assume, axil.awvalid, axil.awready, axil.awaddr)
        stable(m, Assume, axil.wvalid, axil.wready, axil.wdata, axil.wstrb)
        stable(m, Assume, axil.arvalid, axil.arready, axil.araddr)
        stable(m, Assume, response.valid, response.ready, Value.cast(response.p))
        stable(m, Assert, axil.bvalid, axil.bready, Value.cast(axil.bresp))
        stable(m, Assert, axil.rvalid, axil.rready, axil.rdata, Value.cast(axil.rresp))
        stable(m, Assert, request.valid, request.ready, Value.cast(request.p))

        due = {}
        for name, end in (("aw", "b"), ("w", "b"), ("ar", "r")):
            due[name] = Signal(3, name=f"{name}_due")
            begun, ended = (getattr(axil, f"{c}valid") & getattr(axil, f"{c}ready")
                            for c in (name, end))
            m.d.sync += due[name].eq(due[name] + begun - ended)
            m.d.comb += Assert(due[name] <= 2)
            with m.If(getattr(axil, f"{end}valid")):
                m.d.comb += Assert(due[name] != 0)
        waiting = Signal()  # for the response of the register port
        m.d.comb += [Assume(~response.valid | waiting), Assert(~(request.valid & waiting))]
        with m.If(request.valid & request.ready):
            m.d.sync += waiting.eq(1)
        with m.Elif(response.valid & response.ready):
            m.d.sync += waiting.eq(0)
        with m.If(request.valid & request.p.write):
            m.d.comb += Assert((due["aw"] != 0) & (due["w"] != 0))
        with m.If(request.valid & ~request.p.write):
            m.d.comb += Assert(due["ar"] != 0)
        # What is written is the data of the oldest write, with all strobes.
        kept, strobes = Signal(32), Signal(4)
        with m.If(axil.wvalid & axil.wready):
            m.d.sync += [kept.eq(axil.wdata), strobes.eq(axil.wstrb)]
        with m.If(request.valid & request.p.write):
            m.d.comb += [Assert(request.p.data == kept), Assert(strobes == 15)]
        return m


def test_packets_pass_both_conversions():
    prove(RoundTripContract(), depth=8)


def test_frames_leave_without_a_gap():
    prove(SenderContract(), depth=12, flat=True)


def test_bridge():
    prove(BridgeContract(), depth=12)


def test_mutants_are_found():
    """Errors of each component that its contract is there to see."""
    for contract, depth, part, component, old, new in (
            (RoundTripContract, 3, "transmitter", AxiTransmitter, "beat.dwords > lane",
             "beat.dwords >= lane"),
            (RoundTripContract, 3, "receiver", AxiReceiver, "first.eq(axis.tlast)", "first.eq(1)"),
            (BridgeContract, 12, "bridge", AxiLiteBridge, "Mux(writing, data, 0)", "data"),
            (BridgeContract, 12, "bridge", AxiLiteBridge, "write & ~strobes.all()",
             "write & ~strobes.any()"),
            (BridgeContract, 12, "bridge", AxiLiteBridge,
             "has_write_address & has_data & ~axil.bvalid", "has_write_address & has_data"),
            (BridgeContract, 12, "bridge", AxiLiteBridge, "has_read_address.eq(0),", "")):
        with pytest.raises(ProofFailed):
            prove(contract(**{part: mutant(component, (old, new))}), depth=depth)


def test_a_sender_that_cuts_through_leaves_gaps():
    """The contract sees them."""
    wrong = mutant(FrameSender, ("connect(m, frames.o, transmitter.i)",
                                 "connect(m, delivery.o, transmitter.i)"),
                   ("delivery.o.ready.eq(frames.i.ready & may),", ""))
    with pytest.raises(ProofFailed):
        prove(SenderContract(wrong), depth=10, flat=True)
