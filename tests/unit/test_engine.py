"""dxpu.fabric.engine: two engines back to back carry TLPs of all rows, unchanged and in order."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.format import EventCode, FrameType
from dxpu.stream import connect
from dxpu_sim.testbench import (
    Packet, check_stream, collect_packets, collect_words, count_pulses, drive_packets, drive_words,
    seed, simulate,
)

HOST, BOX = 0x001, 0x105
ROWS = 3


class Pair(wiring.Component):
    """A host's and a box's engine, path 0 connected both ways; ``corrupt`` inverts a bit of data
    that goes to the box."""

    def __init__(self, width, **options):
        self.host = FabricEngine(width, rows=ROWS, paths=1, **options)
        self.box = FabricEngine(width, rows=ROWS, paths=1, **options)
        super().__init__({"corrupt": In(1), "unused": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.host, m.submodules.box = self.host, self.box
        connect(m, self.host.frame_o[0], self.box.frame_i[0])
        connect(m, self.box.frame_o[0], self.host.frame_i[0])
        with m.If(self.corrupt):
            m.d.comb += self.box.frame_i[0].payload.data[5].eq(
                ~self.host.frame_o[0].payload.data[5])
        return m

    def set_up(self, ctx, open_rows=(1 << ROWS) - 1):
        for engine, node, peer, tx, rx in ((self.host, HOST, BOX, 0x1234, 0x4321),
                                           (self.box, BOX, HOST, 0x4321, 0x1234)):
            ctx.set(engine.node, node)
            ctx.set(engine.ack_delay, 50)
            ctx.set(engine.packing_limit, 512)
            ctx.set(engine.open, open_rows)
            ctx.set(engine.sessions[0], dict(valid=1, node=peer, stream=0, tx_tag=tx, rx_tag=rx))
            for n in range(ROWS):
                ctx.set(engine.rows[n], dict(
                    node=peer, slot=n + 1 if node == HOST else 0,
                    local_slot=0 if node == HOST else n + 1, stream=0, paths=1, used=1))


def write(rng, row):
    """A memory write request of random size, as a packet of a row."""
    dwords = rng.choice([1, 2, 3, 31, 32, 64, rng.randint(1, 128)])
    header = bytes([0x40, 0, dwords >> 8, dwords & 0xFF]) + rng.randbytes(3) + bytes([0xFF])
    return Packet(header + rng.randbytes(4) + rng.randbytes(4 * dwords), dict(row=row))


def rows_of(packets):
    return [[p.data for p in packets
             if (p.meta["row"] if isinstance(p.meta, dict) else p.meta.row) == n]
            for n in range(ROWS)]


@pytest.mark.parametrize("width, split", [
    (64, False), (512, False), (64, True), *(pytest.param(width, split, marks=pytest.mark.long)
                                             for width, split in ((32, False), (256, False),
                                                                  (32, True), (256, True),
                                                                  (512, True)))])
def test_tlps_cross_both_ways(width, split):
    rng = random.Random(seed())
    dut = Pair(width, split=split)
    down = [write(rng, rng.randrange(ROWS)) for _ in range(40)]
    up = [write(rng, rng.randrange(ROWS)) for _ in range(40)]
    at_box, at_host, events, host, box = [], [], [], {}, {}

    async def feed(ctx):
        dut.set_up(ctx)
        await drive_packets(dut.host.tlp_i, down, rng=rng, density=0.9)(ctx)

    event = dict(type=FrameType.EVENT, row=2, code=EventCode.RESET, generation=77, argument=5)
    simulate(dut, feed, drive_packets(dut.box.tlp_i, up, rng=rng, density=0.7),
             drive_words(dut.host.control, [event]), collect_words(dut.box.event, 1, events),
             collect_packets(dut.box.tlp_o, len(down), at_box, rng=rng, density=0.9),
             collect_packets(dut.host.tlp_o, len(up), at_host),
             background=[check_stream(dut.box.tlp_o), check_stream(dut.host.tlp_o),
                         check_stream(dut.host.frame_o[0]), count_pulses(dut.host, host),
                         count_pulses(dut.box, box)])
    assert rows_of(at_box) == rows_of(down)
    assert rows_of(at_host) == rows_of(up)
    assert [(e.row, e.code, e.generation, e.argument) for e in events] == [
        (2, EventCode.RESET, 77, 5)]
    for counts in (host, box):
        assert {k for k, v in counts.items() if v} <= {"tx_frames", "tx_tlps", "rx_frames",
                                                       "rx_tlps"}
    assert host["tx_tlps"] == len(down)


def test_corrupted_frames_are_dropped_whole_and_counted():
    rng = random.Random(seed())
    dut = Pair(64)
    down = [write(rng, rng.randrange(ROWS)) for _ in range(80)]
    got, box, host = [], {}, {}

    async def feed(ctx):
        dut.set_up(ctx)
        for packet in down:
            await drive_packets(dut.host.tlp_i, [packet])(ctx)
            if rng.random() < 0.3:
                ctx.set(dut.corrupt, 1)
                await ctx.tick()
                ctx.set(dut.corrupt, 0)
        await ctx.tick().repeat(2000)

    simulate(dut, feed, background=[
        collect_packets(dut.box.tlp_o, 10**6, got), count_pulses(dut.box, box),
        count_pulses(dut.host, host)])
    arrived = [p.data for p in got]
    remaining = iter([p.data for p in down])
    assert all(any(a == b for b in remaining) for a in arrived), "changed or out of order"
    assert 0 < len(arrived) < len(down)
    dropped = sum(v for k, v in box.items() if k.startswith("rx_")
                  and k not in ("rx_frames", "rx_tlps"))
    assert box["rx_frames"] + dropped == host["tx_frames"], (box, host)
    assert box["link_gap"] > 0


def test_closed_rows_pass_nothing():
    rng = random.Random(seed())
    dut = Pair(64)
    down = [write(rng, n % ROWS) for n in range(30)]
    got, host, box = [], {}, {}

    async def feed(ctx):
        dut.set_up(ctx, open_rows=0b101)
        ctx.set(dut.box.open, 0b110)
        await drive_packets(dut.host.tlp_i, down)(ctx)
        await ctx.tick().repeat(1000)

    simulate(dut, feed, background=[collect_packets(dut.box.tlp_o, 10**6, got),
                                    count_pulses(dut.host, host), count_pulses(dut.box, box)])
    assert rows_of(got) == [[], [], rows_of(down)[2]]
    assert host["tx_unbound"] == 10 and box["rx_unbound"] == 10
