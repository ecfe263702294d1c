"""Two proxies by AXI alone, against the models of cocotbext-axi: registers, TLPs, a line at its
rate.

Environment: ``WIDTH``, ``CORE_PERIOD_PS``, ``MAC_PERIOD_PS`` (0: the clock of the core),
``WRITES`` (of the measurement), ``PAYLOAD`` (bytes of each), ``HOST_FLOOR``, ``BOX_FLOOR`` (share
of the wire limit that must arrive).
"""

import os

import cocotb
from cocotb.triggers import Timer, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiResp, AxiStreamFrame

from dxpu.fabric.wire.format import HEADER_BYTES

from .axi_design import NAMES
from .axi_line import FRAME_OVERHEAD
from .axi_testbench import ABOVE, BASE, PACKING, TB, tlp, write_of

WIDTH = int(os.environ.get("WIDTH", "64"))
CORE_PERIOD_PS = int(os.environ.get("CORE_PERIOD_PS", "6400"))
MAC_PERIOD_PS = int(os.environ.get("MAC_PERIOD_PS", "6400"))
WRITES = int(os.environ.get("WRITES", "400"))
PAYLOAD = int(os.environ.get("PAYLOAD", "128"))
#: Share of what the format allows that must arrive, by sender.
FLOOR = {name: float(os.environ.get(f"{name.upper()}_FLOOR", "0")) for name in NAMES}
#: Name of the device.
IDENTITY = 0x1234_4458


async def start(dut):
    """The models, after the setup."""
    tb = TB(dut, WIDTH, core_period_ps=CORE_PERIOD_PS, mac_period_ps=MAC_PERIOD_PS)
    await tb.start()
    return tb


def record(payload):
    """Bytes of a write in a frame."""
    return -(-(12 + payload + 4) // 8) * 8


def writes_per_frame(payload):
    """As many writes as may share a frame."""
    return min(31, (PACKING - HEADER_BYTES) // record(payload))


def wire_limit(payload):
    """Payload per byte on the wire."""
    count = writes_per_frame(payload)
    return count * payload / (HEADER_BYTES + count * record(payload) + FRAME_OVERHEAD)


@cocotb.test()
async def registers_and_reads(dut):
    """Registers answer by AXI4-Lite, with errors where they must; a read crosses the fabric, and
    one of the device comes back."""
    tb = await start(dut)
    assert await tb.read("host", "control.node") == 1
    for proxy in NAMES:
        master, address = tb.registers[proxy], tb.maps[proxy].address("control.boot")
        assert (await master.read(0xFF00, 4)).resp == AxiResp.SLVERR
        assert (await master.write(0xFF00, bytes(4))).resp == AxiResp.SLVERR
        # A part of a register cannot be written, and keeps its value.
        assert (await master.write(address + 1, b"\xff")).resp == AxiResp.SLVERR
        assert await tb.read(proxy, "control.boot") == 1

    async def answer():
        return await tb.device(IDENTITY.to_bytes(4, "little"))

    answers = cocotb.start_soon(answer())
    assert await tb.configure(0x300, 0) == IDENTITY
    assert (await answers).kind == "CfgRd0"
    data = tb.rng.randbytes(64)

    async def memory():
        return await tb.device(data)

    answers = cocotb.start_soon(memory())
    read = tlp("MRd32", address=BASE + 0x40, length=16, first_be=15, last_be=15, tag=5)
    assert await tb.ask(read) == data
    assert (await answers).address == BASE + 0x40

    # From the device to the host: to memory that is in no window of the switch.
    sent = tlp("MWr32", address=ABOVE, payload=data, length=16, first_be=15, last_be=15,
               requester_id=0x0300)
    await tb.sources[0].send(sent.pack())
    got = await with_timeout(tb.sinks["host", "p"].recv(), 50, "us")
    assert bytes(got) == sent.pack()
    tb.check_line()
    await tb.check_macs()


@cocotb.test()
async def a_tlp_with_tuser_has_no_effect(dut):
    """Nor has one that is no whole dwords; the next one passes."""
    tb = await start(dut)
    good = write_of(BASE, tb.rng.randbytes(32)).pack()
    for data, bad in ((good, 1), (good[:-2], 0), (good, 0)):
        await tb.sources["host"].send(AxiStreamFrame(data, tuser=bad))
    assert bytes(await with_timeout(tb.sinks[0, "p"].recv(), 50, "us")) == good
    assert await tb.read("host", "counters.pcie_discarded") == 2
    await Timer(5, "us")
    assert tb.sinks[0, "p"].empty()


@cocotb.test()
async def bad_frames_come_again(dut):
    """Every fifth frame arrives with ``tuser``, both ways: all TLPs arrive once, in order, and the
    MACs count what the lines have spoiled."""
    tb = await start(dut)
    for proxy in NAMES:
        # A lost frame without a successor waits for this timer: 64 cycles x 50.
        await tb.write(proxy, "control.retry", wait=50)
        getattr(dut, f"{proxy}_spoil").value = 5
    for _ in range(4):
        await tb.burst(40, PAYLOAD)
    for proxy in NAMES:
        getattr(dut, f"{proxy}_spoil").value = 0
    await tb.burst(10, PAYLOAD)
    assert tb.statistics("host")["spoiled"] > 5
    tb.check_line()
    await tb.check_macs()


@cocotb.test()
@cocotb.parametrize(source=NAMES)
async def line_rate(dut, source):
    """Of what the format allows on a full line, as much arrives as the test asks for."""
    tb = await start(dut)
    group = writes_per_frame(PAYLOAD)
    await tb.burst(20, PAYLOAD, source=source, group=group)
    before = tb.statistics(source)
    times = await tb.burst(WRITES, PAYLOAD, source=source, group=group)
    after = tb.statistics(source)
    first, last = WRITES // 4, WRITES - WRITES // 8
    rate = (last - first) * PAYLOAD / (times[last] - times[first])
    line = WIDTH / 8 / (MAC_PERIOD_PS or CORE_PERIOD_PS)
    share = rate / line / wire_limit(PAYLOAD)
    frames = after["frames"] - before["frames"]
    print(f"line_rate: {source}, {line * 8000:.1f} Gb/s: {WRITES} writes of {PAYLOAD} B in "
          f"{frames} frames, {rate * 8000:.2f} Gb/s of payload, {share:.1%} of the limit at "
          f"{get_sim_time('us'):.0f} us", flush=True)
    assert share >= FLOOR[source]
    tb.check_line()
    await tb.check_macs()
