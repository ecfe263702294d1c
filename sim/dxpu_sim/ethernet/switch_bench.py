"""The Ethernet switch model between MACs: byte exact, with the right delay, nothing lost."""

import json
import os
import random
import zlib
from pathlib import Path

import cocotb
from cocotb.triggers import Timer, ValueChange
from cocotb.utils import get_sim_time

from .capture import Capture
from .ethernet_switch import TOTALS
from .frames import FramePort
from .pcap import PcapWriter

PORTS = 3
FRAMES = int(os.environ.get("FRAMES", "60"))
BROADCAST = b"\xff" * 6


def address(node):
    return bytes([0x02, 0x44, 0x58, 0]) + node.to_bytes(2, "big")


def fcs(frame):
    return frame + zlib.crc32(frame).to_bytes(4, "little")


class TB:
    def __init__(self, dut):
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        self.ports = [FramePort(dut, getattr(dut, f"source{n}").rows, getattr(dut, f"sink{n}").rows,
                                tx=f"tx{n}", rx=f"rx{n}") for n in range(PORTS)]
        for n in range(PORTS):
            getattr(dut, f"drop{n}").value = 0
        dut.delay.value = 20
        dut.room.value = 0xFFFFFF
        self.before = None

    async def start(self):
        await Timer(500, "ns")
        self.before = self._totals()

    def _totals(self):
        return {(n, name): int(getattr(self.dut.switch, f"port{n}_{name}").value)
                for n in range(PORTS) for name in TOTALS}

    def counts(self, *names):
        """Totals since the start: for each of ``names`` the list over the ports."""
        after = self._totals()
        return [[after[n, name] - self.before[n, name] for n in range(PORTS)] for name in names]

    def frame(self, to, source, size=None):
        size = size or 4 * self.rng.choice([15, 16, 17, 32, 128, 377, self.rng.randrange(15, 300)])
        return to + source + self.rng.randbytes(size - 12)

    async def settle(self):
        quiet = 0
        while quiet < 2:
            before = self._totals()
            await Timer(20, "us")
            quiet = quiet + 1 if before == self._totals() else 0
        for port in self.ports:
            port.check()

    def check_clean(self, *exceptions):
        for name in ("rx_bad", "rx_dropped", "rx_filtered", "tx_overflow"):
            if name not in exceptions:
                assert self.counts(name) == [[0] * PORTS], name
        assert int(self.dut.errors.value) == 0

    async def send_all(self, port, frames):
        for frame in frames:
            await self.ports[port].send(frame)


@cocotb.test
async def delay(dut):
    """The time from the end of a frame at its entry to the first byte at its exit is the delay."""
    tb = TB(dut)
    await tb.start()
    for cycles in (8, 9, 20, 100, 1000):
        dut.delay.value = cycles
        for size in (60, 64, 400):
            frame = tb.frame(address(2), address(1), size)
            await tb.ports[0].send(frame)
            while int(dut.tx_en.value) != 1:
                await ValueChange(dut.tx_en)
            while int(dut.tx_en.value):
                await ValueChange(dut.tx_en)
            end = get_sim_time("ps")
            await ValueChange(dut.rx_dv)
            assert int(dut.rx_dv.value) == 2
            assert get_sim_time("ps") - end == 8000 * cycles
            assert await tb.ports[1].received.get() == (frame, False)
    tb.check_clean()


@cocotb.test
async def traffic(dut):
    """All ports send to all others at once, captured: every frame once, in order, byte exact."""
    tb = TB(dut)
    await tb.start()
    seen = []
    with PcapWriter("traffic.pcapng") as writer:
        Capture(dut.switch, writer, ports=PORTS,
                call=lambda port, time, frame, bad: seen.append((port, time, frame, bad)))
        sent = {n: [] for n in range(PORTS)}
        for n in range(PORTS):
            for _ in range(FRAMES):
                to = tb.rng.choice([k for k in range(PORTS) if k != n])
                sent[n].append((to, tb.frame(address(to + 1), address(n + 1))))
        tasks = [cocotb.start_soon(tb.send_all(n, [frame for _, frame in sent[n]]))
                 for n in range(PORTS)]
        for task in tasks:
            await task
        await tb.settle()
    for n, port in enumerate(tb.ports):
        got = port.take()
        assert not any(discard for _, discard in got)
        for k in range(PORTS):
            assert ([frame for frame, _ in got if frame[6:12] == address(k + 1)]
                    == [frame for to, frame in sent[k] if to == n])
        assert len(got) == sum(to == n for k in sent for to, _ in sent[k])
    frames, left = tb.counts("rx_frames", "tx_frames")
    assert frames == [FRAMES] * PORTS and sum(left) == PORTS * FRAMES
    tb.check_clean()

    for n in range(PORTS):
        assert [frame for port, _, frame, _ in seen if port == n] == [fcs(f) for _, f in sent[n]]
        times = [time for port, time, _, _ in seen if port == n]
        # On the wire in sequence: frame, FCS, gap, preamble.
        for (first, second), (_, frame) in zip(zip(times, times[1:], strict=False), sent[n],
                                               strict=False):
            assert second - first >= 8 * (len(frame) + 4 + 12 + 8)
    assert not any(bad for *_, bad in seen)


@cocotb.test
async def learning(dut):
    """Unknown addresses flood, known addresses do not; broadcasts always flood; never back."""
    tb = TB(dut)
    await tb.start()
    a, b = b"\x02\x00\x00\x00\x10\x0a", b"\x02\x00\x00\x00\x10\x0b"

    async def carry(port, frame, to):
        await tb.ports[port].send(frame)
        await tb.settle()
        for n, other in enumerate(tb.ports):
            assert other.take() == ([(frame, False)] if n in to else []), n

    await carry(0, tb.frame(b, a), {1, 2})
    await carry(1, tb.frame(a, b), {0})
    await carry(0, tb.frame(b, a), {1})
    await carry(2, tb.frame(BROADCAST, address(3)), {0, 1})
    # Host a moves to port 2, and is found there.
    await carry(2, tb.frame(b, a), {1})
    await carry(1, tb.frame(a, b), {2})
    # Fixed addresses are never learned.
    await carry(0, tb.frame(address(3), address(2)), {2})
    await carry(2, tb.frame(address(2), address(3)), {1})
    tb.check_clean()
    await carry(2, tb.frame(address(3), address(3)), set())
    assert tb.counts("rx_filtered") == [[0, 0, 1]]


@cocotb.test
async def drop(dut):
    """The fault input loses exactly the next good frames of its port; bad frames end here."""
    tb = TB(dut)
    await tb.start()
    frames = [tb.frame(address(2), address(1)) for _ in range(12)]
    with PcapWriter("drops.pcapng") as writer:
        Capture(dut.switch, writer, ports=PORTS, name=["a", "b", "c"])
        for n, frame in enumerate(frames):
            if n == 3:
                dut.drop0.value = 1
            if n == 6:
                await tb.ports[0].send(frame, discard=True)
            else:
                await tb.ports[0].send(frame)
            await tb.settle()
            if n == 7:
                dut.drop0.value = 3
    assert tb.ports[1].take() == [(f, False) for n, f in enumerate(frames) if n not in (3, 6, 8, 9)]
    assert tb.counts("rx_dropped", "rx_bad") == [[3, 0, 0], [1, 0, 0]]
    tb.check_clean("rx_dropped", "rx_bad")


@cocotb.test
async def overload(dut):
    """Two ports overload a third: excess frames are lost as a whole and counted."""
    tb = TB(dut)
    await tb.start()
    sent = [[tb.frame(address(3), address(n + 1), 1500) for _ in range(60)] for n in range(2)]
    tasks = [cocotb.start_soon(tb.send_all(n, frames)) for n, frames in enumerate(sent)]
    for task in tasks:
        await task
    await tb.settle()
    got = [frame for frame, _ in tb.ports[2].take()]
    for n in range(2):
        mine = [frame for frame in got if frame[6:12] == address(n + 1)]
        assert mine == [frame for frame in sent[n] if frame in mine]
    (lost,) = tb.counts("tx_overflow")
    assert lost[:2] == [0, 0] and 0 < lost[2] < 100
    assert len(got) + lost[2] == 120
    tb.check_clean("tx_overflow")


@cocotb.test
async def full(dut):
    """A queue without room loses frames as a whole, also one copy of several; captured."""
    tb = TB(dut)
    await tb.start()
    dut.room.value = 10 * 1504
    sent = [[tb.frame(address(3), address(n + 1), 1500) for _ in range(30)] for n in range(2)]
    for n in (10, 20, 25):
        sent[0][n] = tb.frame(BROADCAST, address(1), 1500)
    with PcapWriter("full.pcapng") as writer:
        Capture(dut.switch, writer, ports=PORTS, name=["a", "b", "c"])
        tasks = [cocotb.start_soon(tb.send_all(n, frames)) for n, frames in enumerate(sent)]
        for task in tasks:
            await task
        await tb.settle()
    received = [[frame for frame, _ in port.take()] for port in tb.ports]
    assert received[0] == [] and received[1] == [f for f in sent[0] if f[:6] == BROADCAST]
    (lost,) = tb.counts("tx_overflow")
    assert lost[:2] == [0, 0] and 5 < lost[2] == 60 - len(received[2])
    Path("full.json").write_text(json.dumps([frame.hex() for frame in received[2]]))
    tb.check_clean("tx_overflow")
