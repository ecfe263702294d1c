"""Registers as an AXI4-Lite subordinate (ARM IHI 0022, A3 and B1)."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import RegisterPort

__all__ = ["AxiLite", "AxiLiteBridge", "AxiResponse"]


class AxiResponse(enum.Enum, shape=2):
    """Response of a transaction (A3.4.4)."""

    OKAY = 0
    #: The access is not possible; a write has changed nothing.
    SLVERR = 2


class AxiLite(wiring.Signature):
    """AXI4-Lite with 32 data bits and 16 address bits, seen from the manager.

    Members
    -------
    awaddr, awprot, awvalid, awready
        Write address. ``awprot`` is ignored.
    wdata, wstrb, wvalid, wready
        Write data.
    bresp, bvalid, bready
        Write response.
    araddr, arprot, arvalid, arready
        Read address. ``arprot`` is ignored.
    rdata, rresp, rvalid, rready
        Read data.
    """

    def __init__(self):
        super().__init__({
            "awaddr": Out(16), "awprot": Out(3), "awvalid": Out(1), "awready": In(1),
            "wdata": Out(32), "wstrb": Out(4), "wvalid": Out(1), "wready": In(1),
            "bresp": In(AxiResponse), "bvalid": In(1), "bready": Out(1),
            "araddr": Out(16), "arprot": Out(3), "arvalid": Out(1), "arready": In(1),
            "rdata": In(32), "rresp": In(AxiResponse), "rvalid": In(1), "rready": Out(1),
        })

    def __eq__(self, other):
        return type(self) is type(other)


class AxiLiteBridge(wiring.Component):
    """Passes the transactions of an AXI4-Lite manager to a register port, one at a time.

    Address and data of a write may come in any order. When a write and a read wait, they take
    turns. A response that is not taken holds back the next transaction of its kind only. The next
    address, or data, is taken meanwhile.

    - Bits 1:0 of an address are ignored: every access is to a whole register.
    - A write with all strobes is passed on. One without any has no effect, and ends in OKAY. Any
      other ends in SLVERR, and changes nothing: registers are written as a whole (B1.1.1 allows
      it).
    - SLVERR also stands for an error of the register port, whose data are 0. DECERR is the word of
      an interconnect that finds no subordinate at an address, and never comes from here.

    All outputs depend on registers only, so no path leads through from an input (A3.2.1). Latency
    of a read, from the cycle in which the address is taken to that of ``rvalid``: 3 cycles and
    those between request and response of the register port.

    Members
    -------
    axil : In(AxiLite)
    bus : Out(RegisterPort)
    """

    axil: In(AxiLite())
    bus: Out(RegisterPort())

    def elaborate(self, platform):
        m = Module()
        axil, request, response = self.axil, self.bus.request, self.bus.response

        write_address, read_address = Signal(14, reset_less=True), Signal(14, reset_less=True)
        data, strobes = Signal(32, reset_less=True), Signal(4, reset_less=True)
        has_write_address, has_data, has_read_address = Signal(), Signal(), Signal()
        m.d.comb += [
            axil.awready.eq(~has_write_address),
            axil.wready.eq(~has_data),
            axil.arready.eq(~has_read_address),
        ]
        with m.If(axil.awvalid & axil.awready):
            m.d.sync += [has_write_address.eq(1), write_address.eq(axil.awaddr[2:])]
        with m.If(axil.wvalid & axil.wready):
            m.d.sync += [has_data.eq(1), data.eq(axil.wdata), strobes.eq(axil.wstrb)]
        with m.If(axil.arvalid & axil.arready):
            m.d.sync += [has_read_address.eq(1), read_address.eq(axil.araddr[2:])]
        with m.If(axil.bready):
            m.d.sync += axil.bvalid.eq(0)
        with m.If(axil.rready):
            m.d.sync += axil.rvalid.eq(0)

        # The kind that is under way, or was the last one; the other kind goes first next.
        writing = Signal()
        may_write, may_read, write = Signal(), Signal(), Signal()
        m.d.comb += [
            may_write.eq(has_write_address & has_data & ~axil.bvalid),
            may_read.eq(has_read_address & ~axil.rvalid),
            write.eq(may_write & ~(may_read & writing)),
            request.p.address.eq(Mux(writing, write_address, read_address) << 2),
            request.p.write.eq(writing),
            # Data may come while a read waits, and must not show.
            request.p.data.eq(Mux(writing, data, 0)),
        ]

        def end_write(error):
            m.d.sync += [
                axil.bvalid.eq(1),
                axil.bresp.eq(Mux(error, AxiResponse.SLVERR, AxiResponse.OKAY)),
                has_write_address.eq(0), has_data.eq(0),
            ]

        with m.FSM():
            with m.State("Idle"):
                with m.If(may_write | may_read):
                    m.d.sync += writing.eq(write)
                with m.If(write & ~strobes.all()):
                    end_write(strobes.any())
                with m.Elif(may_write | may_read):
                    m.next = "Request"
            with m.State("Request"):
                m.d.comb += request.valid.eq(1)
                with m.If(request.ready):
                    m.next = "Response"
            with m.State("Response"):
                m.d.comb += response.ready.eq(1)
                with m.If(response.valid):
                    m.next = "Idle"
                    with m.If(writing):
                        end_write(response.p.error)
                    with m.Else():
                        m.d.sync += [
                            axil.rvalid.eq(1), axil.rdata.eq(response.p.data),
                            axil.rresp.eq(Mux(response.p.error, AxiResponse.SLVERR,
                                              AxiResponse.OKAY)),
                            has_read_address.eq(0),
                        ]
        return m
