"""The MAC against cocotbext-eth's GMII source and sink, at full line rate.

Environment: ``FRAMES`` (per direction), ``CORE_PERIOD_PS``, ``RX_PERIOD_PS``.
"""

import logging
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Timer
from cocotbext.eth import GmiiFrame, GmiiSink, GmiiSource

from dxpu.ethernet import Mac
from dxpu.ethernet.receive import MAX_FRAME

from .frames import FramePort

FRAMES = int(os.environ.get("FRAMES", "60"))
CORE_PERIOD_PS = int(os.environ.get("CORE_PERIOD_PS", "8000"))
RX_PERIOD_PS = int(os.environ.get("RX_PERIOD_PS", "8000"))


class TB:
    """Models at both ends of the MAC, and the counters at the start of the test."""

    def __init__(self, dut):
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        self.source, self.sink = self.models(dut)
        for model in (self.source, self.sink):
            model.log.setLevel(logging.WARNING)
        dut.rx_stall.value = 0

    def models(self, dut):
        """Source and sink of frames on the line side."""
        return (GmiiSource(dut.gmii__rx__rxd, dut.gmii__rx__rx_er, dut.gmii__rx__rx_dv,
                           dut.rx_clock),
                GmiiSink(dut.gmii__tx__txd, dut.gmii__tx__tx_er, dut.gmii__tx__tx_en,
                         dut.tx_clock))

    async def start(self):
        self.dut.tx_send.value = 0
        self.dut.rst.value = 1
        Clock(self.dut.clk, CORE_PERIOD_PS, "ps", impl="gpi").start()
        await Timer(200, "ns")
        self.dut.rst.value = 0
        await Timer(300, "ns")
        self.port = FramePort(self.dut, self.dut.source.rows, self.dut.sink.rows)
        self._before = self._totals()

    def _totals(self):
        return {name: int(getattr(self.dut, f"total_{name}").value) for name in Mac.STATISTICS}

    def counts(self):
        """Events since the start, without zeros."""
        after = self._totals()
        return {name: after[name] - n for name, n in self._before.items() if after[name] != n}

    def frame(self, size=None):
        sizes = (60, 64, 68, 124, 128, 132, 1514 // 4 * 4, 1516, MAX_FRAME)
        if size is None:
            size = (self.rng.choice(sizes) if self.rng.random() < 0.3
                    else 4 * self.rng.randrange(15, 380))
        return self.rng.randbytes(size)

    async def settle(self):
        await self.source.wait()
        quiet = 0
        while quiet < 2:
            before = self.sink.count(), self.port.received.qsize(), self._totals()
            await Timer(2, "us")
            quiet = quiet + 1 if before == (self.sink.count(), self.port.received.qsize(),
                                            self._totals()) and not self.sink.active else 0
        self.port.check()


def check_sent(tb, frames):
    """Check each frame: whole, with preamble, padding and FCS, and exactly 12 bytes apart."""
    previous = None
    for sent in frames:
        frame = tb.sink.recv_nowait()
        # The sink records the time of the first byte, but not the byte.
        assert bytes(frame.get_preamble()) == b"\x55" * 6 + b"\xd5"
        assert (frame.sim_time_sfd - frame.sim_time_start) == 8 * 8000
        assert frame.check_fcs()
        assert bytes(frame.get_payload()) == sent.ljust(60, b"\0")
        assert frame.error is None or not any(frame.error)
        if previous is not None:
            assert (frame.sim_time_start - previous) == 12 * 8000
        previous = frame.sim_time_end
    assert tb.sink.empty()


@cocotb.test
async def line_rate(dut):
    """Both directions back to back at once: byte exact, gap 12, and only good frames counted."""
    tb = TB(dut)
    await tb.start()
    up, down = [tb.frame() for _ in range(FRAMES)], [tb.frame() for _ in range(FRAMES)]
    sent = [GmiiFrame.from_payload(frame) for frame in down]
    ends = []
    for frame in sent:
        frame.tx_complete = lambda done: ends.append((done.sim_time_start, done.sim_time_end))
        tb.source.send_nowait(frame)
    for frame in up:
        await tb.port.send(frame)
    await tb.settle()

    # The source kept the line busy: its gap of 12 is really 12.
    assert len(ends) == FRAMES
    assert {(b[0] - a[1]) // RX_PERIOD_PS for a, b in zip(ends, ends[1:], strict=False)} == {13}
    assert tb.port.take() == [(frame, False) for frame in down]
    check_sent(tb, up)
    assert tb.counts() == {"tx_good": FRAMES, "rx_good": FRAMES}


@cocotb.test
async def smallest_frames(dut):
    """64-byte frames back to back: the highest frame rate, in both directions."""
    tb = TB(dut)
    await tb.start()
    up, down = [[tb.frame(60) for _ in range(2 * FRAMES)] for _ in range(2)]
    for frame in down:
        tb.source.send_nowait(GmiiFrame.from_payload(frame))
    for frame in up:
        await tb.port.send(frame)
    await tb.settle()
    assert tb.port.take() == [(frame, False) for frame in down]
    check_sent(tb, up)
    assert tb.counts() == {"tx_good": 2 * FRAMES, "rx_good": 2 * FRAMES}


@cocotb.test
async def short_frames_are_padded(dut):
    tb = TB(dut)
    await tb.start()
    frames = [tb.frame(4 * n) for n in range(1, 17)]
    for frame in frames:
        await tb.port.send(frame)
    await tb.settle()
    check_sent(tb, frames)
    assert tb.counts() == {"tx_good": len(frames)}


@cocotb.test
async def given_up_frames_end_with_an_error(dut):
    tb = TB(dut)
    await tb.start()
    frames = [(tb.frame(tb.rng.choice([60, 64, 400])), n % 2) for n in range(10)]
    for frame, discard in frames:
        await tb.port.send(frame, discard=discard)
    await tb.settle()
    for sent, discard in frames:
        frame = tb.sink.recv_nowait()
        assert bool(frame.error and any(frame.error)) == bool(discard)
        assert frame.check_fcs() != bool(discard)
        assert len(frame) == 7 + len(sent) + (1 if discard else 4)
    assert tb.sink.empty()
    assert tb.counts() == {"tx_good": 5, "tx_aborted": 5}


def damaged(tb):
    """Bad frames of every kind: counter and frame."""
    for size in (60, 64, 1516, MAX_FRAME):
        body = tb.frame(size)
        whole = GmiiFrame.from_payload(body)
        flip = GmiiFrame(whole)
        flip.data[8 + tb.rng.randrange(size + 4)] ^= 1 << tb.rng.randrange(8)
        yield "bad_fcs", flip
        hurt = GmiiFrame(whole)
        hurt.error = [0] * len(hurt.data)
        hurt.error[tb.rng.randrange(len(hurt.data))] = 1
        yield "error", hurt
    for size in (0, 1, 4, 8, 30, 56, 59):
        yield "runt", GmiiFrame.from_payload(tb.frame(size), min_len=0)
    yield "runt", GmiiFrame(b"\x55" * 20)
    for size in (MAX_FRAME + 1, MAX_FRAME + 4, 9018):
        yield "giant", GmiiFrame.from_payload(tb.frame(size))
    for size in (61, 62, 63, 1514, MAX_FRAME - 1):
        yield "not_dwords", GmiiFrame.from_payload(tb.frame(size))
    for garbage in (b"\0", b"\xaa\xff\x0f", b"\x55\x00\x5d" * 9):
        good = GmiiFrame.from_payload(tb.frame())
        good.data = bytearray(garbage) + good.data
        yield "good", good


@cocotb.test
async def bad_frames(dut):
    """Each bad frame between two good frames: bad frames are dropped and counted, good frames
    pass."""
    tb = TB(dut)
    await tb.start()
    cases = list(damaged(tb))
    tb.rng.shuffle(cases)
    expected, frames = {}, []
    for kind, bad in cases:
        good = GmiiFrame.from_payload(tb.frame(tb.rng.choice([60, 64, 300])))
        for name, frame in ((kind, bad), ("good", good)):
            expected[f"rx_{name}"] = expected.get(f"rx_{name}", 0) + 1
            if name == "good":
                start = bytes(frame.data).index(b"\x55\xd5") + 2
                frames.append(bytes(frame.data[start:-4]))
            tb.source.send_nowait(frame)
    await tb.settle()
    assert [frame for frame, discard in tb.port.take() if not discard] == frames
    assert tb.counts() == expected


@cocotb.test
async def overflow(dut):
    """The core stops taking frames: whole frames are lost and counted, the rest is intact."""
    tb = TB(dut)
    await tb.start()
    frames = [n.to_bytes(2, "big") + tb.frame(tb.rng.choice([62, 298, 1010])) for n in range(60)]
    for frame in frames:
        tb.source.send_nowait(GmiiFrame.from_payload(frame))
    while not tb.source.idle():
        dut.rx_stall.value = 1
        await Timer(tb.rng.randrange(1, 15_000), "ns")
        dut.rx_stall.value = 0
        await Timer(tb.rng.randrange(1, 15_000), "ns")
    await tb.settle()
    arrived = [frame for frame, discard in tb.port.take() if not discard]
    assert arrived == [frame for frame in frames if frame in arrived]
    counts = tb.counts()
    assert set(counts) == {"rx_good", "rx_overflow"}
    assert counts["rx_good"] == len(arrived)
    assert counts["rx_good"] + counts["rx_overflow"] == len(frames)
