"""dxpu_sim.fabric.flows: what the source makes are TLPs, and the sink finds each thing wrong."""

import random
from collections import Counter

import pytest

from dxpu_model.wire import tlp_length
from dxpu_sim.fabric.fault_design import fields
from dxpu_sim.fabric.flows import FlowSink, FlowSource, SinkTotals
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)
from tests.support.widths import some_widths

ROWS = 3


def make(width, count, fixed=0, salt=1):
    """The first TLPs of a source."""
    dut, got = FlowSource(width, rows=ROWS, seed=7), []

    async def set_up(ctx):
        ctx.set(dut.fixed, fixed)
        ctx.set(dut.most, count)
        ctx.set(dut.salt, salt)
        await ctx.tick()
        ctx.set(dut.salt, 0)
        ctx.set(dut.enable, 1)

    simulate(dut, set_up, collect_packets(dut.o, count, got, rng=random.Random(seed()),
                                          density=0.8), background=[check_stream(dut.o)])
    return [Packet(p.data, dict(row=p.meta.row)) for p in got]


def judge(width, packets, fixed=0):
    """The sink's totals."""
    dut, totals = FlowSink(width, rows=ROWS, seed=8), {}

    async def feed(ctx):
        ctx.set(dut.fixed, fixed)
        ctx.set(dut.stall, 20_000)
        await drive_packets(dut.i, packets)(ctx)
        await ctx.tick().repeat(3)
        totals.update({name: ctx.get(dut.totals[name]) for name, _ in fields(SinkTotals)})

    simulate(dut, feed)
    assert totals.pop("tlps") == len(packets)
    assert totals.pop("cycle")
    return {name: count for name, count in totals.items() if count and name != "payload"}, totals


def number(packet):
    return packet.data[0], packet.meta["row"], int.from_bytes(packet.data[4:8], "little")


@pytest.mark.parametrize("width", [64, 128, 512])
def test_all_is_well(width):
    packets = make(width, 120)
    assert all(tlp_length(p.data) == len(p.data) for p in packets)
    kinds = Counter(p.data[0] for p in packets)
    assert set(kinds) == {0x40, 0x00, 0x4A} and min(kinds.values()) > 10
    assert {p.meta["row"] for p in packets} == set(range(ROWS))
    assert len({len(p.data) for p in packets}) > 10
    wrong, totals = judge(width, packets)
    assert wrong == {}
    assert 4 * totals["payload"] == sum(len(p.data) - 12 for p in packets)


def test_fixed_size_and_salt():
    packets = make(64, 20, fixed=32)
    assert all(len(p.data) == 12 + 128 and p.data[0] == 0x40 for p in packets)
    assert judge(64, packets, fixed=32)[0] == {}
    assert [p.data for p in make(64, 20, salt=2)] != [p.data for p in make(64, 20, salt=3)]


@pytest.mark.parametrize("width", some_widths(64, of=(64, 512)))
def test_each_wrong_byte_is_seen(width):
    packets = make(width, 12)
    for n, packet in enumerate(packets):
        for at in {0, 3, 9, len(packet.data) - 1, random.Random(n).randrange(len(packet.data))}:
            data = bytearray(packet.data)
            data[at] ^= 1 << (n % 8)
            harmed = [*packets[:n], Packet(bytes(data), packet.meta), *packets[n + 1:]]
            assert judge(width, harmed)[0], (n, at)


def test_one_lost_doubled_or_late():
    packets = make(64, 80)
    rng = random.Random(seed())
    for _ in range(6):
        # One that has a successor in its flow.
        n = rng.choice([n for n, p in enumerate(packets) if any(
            number(p)[:2] == number(q)[:2] for q in packets[n + 1:])])
        without = [*packets[:n], *packets[n + 1:]]
        wrong = judge(64, without)[0]
        assert wrong["lost"] == 1 and not {"doubled", "reordered", "changed"} & set(wrong)
        again = rng.randint(n + 1, len(packets))
        doubled = [*packets[:again], packets[n], *packets[again:]]
        assert judge(64, doubled)[0].keys() - {"passed"} == {"doubled"}
        later = [*without, packets[n]]
        wrong = judge(64, later)[0]
        assert wrong["reordered"] == 1 and "lost" not in wrong


def test_a_posted_one_that_is_passed():
    packets = make(64, 80)
    # A posted TLP, then one of another class of its row: swapped, each flow is still in order.
    n = next(n for n, (p, q) in enumerate(zip(packets, packets[1:], strict=False))
             if p.data[0] == 0x40 != q.data[0] and p.meta == q.meta)
    packets[n], packets[n + 1] = packets[n + 1], packets[n]
    assert judge(64, packets)[0] == {"passed": 1}
