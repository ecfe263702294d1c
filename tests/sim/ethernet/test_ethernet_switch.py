# amaranth: UnusedElaboratable=no
"""dxpu_sim.ethernet.ethernet_switch: which frames its entries take, and its arguments."""

import random
import zlib

import pytest

from dxpu_sim.ethernet.ethernet_switch import ROW, EthernetSwitch, Input, Output
from tests.support.testbench import seed, simulate


def test_entry():
    """Bad frames are known as such; of all, the bytes are in the memory as they came."""
    rng = random.Random(seed())
    dut, rows, arrivals = Input(), {}, []
    cases = []
    for size in (0, 1, 8, 59, 60, 61, 62, 63, 64, 65, 91, 92, 93, 1514):
        frame = rng.randbytes(size)
        frame += zlib.crc32(frame).to_bytes(4, "little")
        cases.append((frame, None, size < 60))
        if size >= 60:
            broken = bytearray(frame)
            broken[rng.randrange(len(frame))] ^= 0x10
            cases += [(bytes(broken), None, True), (frame, rng.randrange(len(frame)), True)]
    rng.shuffle(cases)

    async def drive(ctx):
        for frame, error, _ in cases:
            for n, byte in enumerate(b"\x55" * 7 + b"\xd5" + frame):
                ctx.set(dut.gmii.tx_en, 1)
                ctx.set(dut.gmii.txd, byte)
                ctx.set(dut.gmii.tx_er, error is not None and n == 8 + error)
                await ctx.tick()
            ctx.set(dut.gmii.tx_en, 0)
            ctx.set(dut.gmii.tx_er, 0)
            await ctx.tick().repeat(12)

    async def watch(ctx):
        ctx.set(dut.taken, 1)
        async for _, _, write, row, word, pending, arrival in ctx.tick().sample(
                dut.write, dut.row, dut.word, dut.pending, dut.arrival):
            if write:
                rows[row] = int(word).to_bytes(ROW, "little")
            if pending:
                arrivals.append(arrival)

    simulate(dut, drive, background=[watch])
    assert len(arrivals) == len(cases)
    for (frame, _, bad), arrival in zip(cases, arrivals, strict=True):
        assert arrival.length == len(frame) and arrival.bad == bad
        count = -(-len(frame) // ROW)
        assert b"".join(rows[arrival.start + n] for n in range(count))[:len(frame)] == frame
        if len(frame) >= 12:
            assert arrival.destination == int.from_bytes(frame[:6], "little")
            assert arrival.source == int.from_bytes(frame[6:12], "little")


def test_an_output_that_is_full_drops_what_comes():
    """So many bytes may wait, with the frame that leaves; what has left makes room."""
    dut, lost, seen = Output(depth=8), [], []

    async def drive(ctx):
        ctx.set(dut.room, 200)

        async def push(length):
            ctx.set(dut.entry, dict(length=length))
            ctx.set(dut.push, 1)
            await ctx.tick()
            ctx.set(dut.push, 0)

        for length in (100, 64, 64, 36, 1):
            await push(length)
        await ctx.tick().repeat(3)
        assert len(lost) == 2 and ctx.get(dut.waiting) == 200
        while not seen:
            await ctx.tick()
        await push(100)
        await push(1)
        await ctx.tick().repeat(500)
        assert len(lost) == 3 and len(seen) == 4
        assert ctx.get(dut.waiting) == 0 and ctx.get(dut.peak) == 200

    async def watch(ctx):
        async for _, _, overflow, sent in ctx.tick().sample(dut.overflow, dut.sent):
            lost.extend([1] * overflow)
            seen.extend([1] * sent)

    simulate(dut, drive, background=[watch])


@pytest.mark.parametrize("arguments, message", [
    ({"ports": 1}, "ports must be an integer from 2 to 16, not 1"),
    ({"ports": 17}, "ports must be an integer from 2 to 16, not 17"),
    ({"ports": 3, "queue": 100}, "queue must be a power of two, not 100"),
    ({"ports": 3, "memory_bytes": 0}, "memory_bytes must be a power of two, not 0"),
    ({"ports": 3, "nodes": {1: 3}}, "nodes must map node numbers to ports, not 1 to 3"),
    ({"ports": 3, "nodes": {4096: 0}}, "nodes must map node numbers to ports, not 4096 to 0"),
    ({"ports": 3, "nodes": {1: 0, 1025: 0}}, "nodes must differ modulo 1024"),
])
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        EthernetSwitch(**arguments)
