"""A cocotb bench on generated Verilog: an Ethernet from cocotbext-eth, a PCIe side by hand.

``$PCAP``, if there is one, names a capture: all frames of the proxy, and all TLPs.
"""

import atexit
import os

import cocotb
from cocotb.clock import Clock
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.eth import GmiiSink
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_model.tlp import Tlp
from dxpu_model.wire import parse
from dxpu_sim.ethernet.pcap import TLP, PcapWriter


class Capture:
    """A file for Wireshark (`dxpu wireshark`) and `dxpu trace`."""

    def __init__(self, path: str):
        self.writer = PcapWriter(path)
        self.pcie = self.writer.interface("host", TLP)
        self.network = self.writer.interface("host path 0")
        atexit.register(self.writer.close)

    def tlp(self, raw: bytes, *, inbound: bool):
        """A TLP into the proxy, or out of it, that has just ended."""
        self.writer.write(self.pcie, round(get_sim_time("ns")), raw, inbound=inbound)

    def frame(self, raw: bytes):
        """A frame of the proxy, with FCS, that has just ended."""
        self.writer.write(self.network, round(get_sim_time("ns")), raw)


#: One for all tests of a run, whose time goes on.
CAPTURE = Capture(os.environ["PCAP"]) if "PCAP" in os.environ else None


class Bench:
    """The top, with a clock, a network that listens, and a PCIe link that takes everything."""

    def __init__(self, dut):
        self.dut = dut
        cocotb.start_soon(Clock(dut.clk, 8, "ns").start())
        for name in ("rxd", "rx_dv", "rx_er", "rx_valid", "pcie_link_up"):
            getattr(dut, name).value = 0
        for name in ("rst", "link", "p_ready", "np_ready", "cpl_ready"):
            getattr(dut, name).value = 1
        self.network = GmiiSink(dut.txd, dut.tx_er, dut.tx_en, dut.clk)
        self.frames = Queue()
        cocotb.start_soon(self.listen())

    async def start(self):
        """End the reset, and wait until the top has set the proxy up."""
        for _ in range(8):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.dut.pcie_link_up.value = 1
        await with_timeout(RisingEdge(self.dut.done), 10, "us")

    async def listen(self):
        """Collect all frames, with FCS."""
        while True:
            frame = bytes((await self.network.recv()).get_payload(strip_fcs=False))
            if CAPTURE:
                CAPTURE.frame(frame)
            self.frames.put_nowait(frame)

    async def send(self, tlp: bytes):
        """Send a TLP, a dword a beat."""
        for start in range(0, len(tlp), 4):
            self.dut.rx_data.value = int.from_bytes(tlp[start:start + 4], "little")
            self.dut.rx_first.value = start == 0
            self.dut.rx_last.value = start + 4 == len(tlp)
            self.dut.rx_valid.value = 1
            await RisingEdge(self.dut.clk)
            while not int(self.dut.rx_ready.value):
                await RisingEdge(self.dut.clk)
        self.dut.rx_valid.value = 0
        if CAPTURE:
            CAPTURE.tlp(tlp, inbound=True)

    async def completion(self) -> Tlp:
        """The next completion."""
        data = b""
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.cpl_valid.value):
                data += int(self.dut.cpl_data.value).to_bytes(4, "little")
                if int(self.dut.cpl_last.value):
                    if CAPTURE:
                        CAPTURE.tlp(data, inbound=False)
                    return Tlp.unpack(data)


@cocotb.test
async def the_switch_answers(dut):
    """A configuration read finds the upstream port of the switch."""
    bench = Bench(dut)
    await bench.start()
    assert not int(dut.refused.value)
    read = Tlp(fmt=0, type=4, length=1, first_be=15, requester_id=0, target_id=0x0100, tag=5)
    await bench.send(read.pack())
    answer = await with_timeout(bench.completion(), 20, "us")
    assert (answer.kind, answer.status, answer.tag) == ("CplD", 0, 5)
    assert answer.payload == bytes.fromhex("3412f0d0")  # vendor 1234h, device D0F0h


@cocotb.test
async def a_session_is_asked_for(dut):
    """The first frame on the Ethernet is a HELLO of this host to the box."""
    bench = Bench(dut)
    await bench.start()
    frame = parse(await with_timeout(bench.frames.get(), 100, "us"), with_fcs=True)
    assert (frame.type, frame.src_node, frame.dst_node) == (FrameType.HELLO, 0x001, 0x101)
