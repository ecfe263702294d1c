"""dxpu.switch.messages.latency: what slots tolerate, conglomerated as 6.18 says, and when it is
told."""

import random

import pytest

from dxpu.stream import WIDTHS
from dxpu.switch.messages.latency import LatencyGatherer
from dxpu_model.latency import conglomerate
from tests.support.testbench import Packet, check_stream, drive_packets, seed, simulate

REQUIRED = 0x8000


def ltr(snoop, no_snoop, prefixes=0):
    """A message of a slot: bytes 12 and 13 are the latency that is not snooped."""
    return bytes([0x90, 0, 0, 0]) * prefixes + bytes.fromhex("34000000 03000010 00000000") + (
        no_snoop.to_bytes(2, "big") + snoop.to_bytes(2, "big"))


@pytest.mark.parametrize("latencies, own, expected", [
    ([], 6000, 0),
    ([0x0000, 0x0C40], 6000, 0),                    # nobody requires anything
    ([REQUIRED | 6 << 10 | 1, REQUIRED | 7 << 10], 0, 0),   # scales that are not permitted
    ([REQUIRED | 5 << 10, REQUIRED | 1023], 0, REQUIRED),   # value 0 is 0, whatever the scale
    ([REQUIRED | 2 << 10 | 71], 0, REQUIRED | 2 << 10 | 71),     # 72,704 ns
    ([REQUIRED | 2 << 10 | 71], 704, REQUIRED | 2 << 10 | 70),   # 72,000 ns is 70.3 of 1,024
    ([REQUIRED | 2 << 10 | 32, REQUIRED | 3 << 10 | 1], 1000, REQUIRED | 1 << 10 | 992),
    ([REQUIRED | 999, REQUIRED | 1 << 10 | 31], 0, REQUIRED | 992),
    ([REQUIRED | 5 << 10 | 1023], 6000, REQUIRED | 5 << 10 | 1022),
    ([REQUIRED | 1 << 10 | 187], 6000, REQUIRED),   # 5,984 ns
    ([REQUIRED | 1 << 10 | 188], 6000, REQUIRED | 16)])
def test_conglomeration_by_hand(latencies, own, expected):
    assert conglomerate(latencies, own) == expected


class Bench:
    def __init__(self, width, ports, own, spacing=4):
        self.dut = LatencyGatherer(width, ports, own=own, spacing=spacing)
        self.told, self.cycle = [], 0

    async def watch(self, ctx):
        async for *_, valid, p in ctx.tick().sample(self.dut.o.valid & self.dut.o.ready,
                                                    self.dut.o.p):
            self.cycle += 1
            if valid:
                assert (p.code.value, p.routing.value, p.has_data) == (0x10, 4, 0)
                value = int.from_bytes(p.data.to_bytes(4, "little"), "big")
                self.told.append((self.cycle, p.requester_id, value & 0xFFFF, value >> 16))

    async def say(self, ctx, port, snoop, no_snoop, *, life=0, code=0x10, prefixes=0):
        raw = ltr(snoop, no_snoop, prefixes)
        await drive_packets(self.dut.i, [Packet(raw, {
            "source": port, "life": life, "code": code, "prefix_dwords": prefixes})])(ctx)

    async def next(self, ctx, *expected):
        """What is told meanwhile: pairs of snooped and not snooped latency."""
        await ctx.tick().repeat(16 * len(self.dut.link_active) + 60)
        got, self.told = self.told, []
        assert [(snoop, no_snoop) for _, _, snoop, no_snoop in got] == list(expected)

    def simulate(self, process):
        async def main(ctx):
            ctx.set(self.dut.o.ready, 1)
            ctx.set(self.dut.upstream_id, 0x0100 >> 3)
            await process(ctx)

        simulate(self.dut, main, background=[self.watch, check_stream(self.dut.o)])


@pytest.mark.parametrize("width", WIDTHS)
def test_random_latencies(width):
    rng = random.Random(seed() * 1000 + width)
    ports, own = 3, rng.choice([0, 6000, 31_744])
    bench = Bench(width, ports, own)

    def latency():
        return rng.choice([REQUIRED, REQUIRED, REQUIRED, 0]) | rng.randrange(8) << 10 | rng.choice(
            [rng.randrange(1024), rng.randrange(64), 0, 31, 32, 1023]) | rng.getrandbits(2) << 13

    async def process(ctx):
        last, seen = (0, 0), {n: (0, 0) for n in range(ports)}
        ctx.set(bench.dut.link_active, -1)
        ctx.set(bench.dut.enable, -1)
        ctx.set(bench.dut.tell, 1)
        for _ in range(60):
            port = rng.randrange(ports)
            seen[port] = latency(), latency()
            await bench.say(ctx, port, *seen[port], prefixes=rng.choice([0, 0, 1, 4]))
            now = tuple(conglomerate([pair[n] for pair in seen.values()], own) for n in range(2))
            await bench.next(ctx, *([now] if now != last else []))
            last = now

    bench.simulate(process)


def test_what_is_forgotten_and_when_it_is_told():
    """Links that go, enables that are cleared, an upstream port that may not tell."""
    bench, fifty, forty = Bench(64, 2, 0), REQUIRED | 2 << 10 | 50, REQUIRED | 2 << 10 | 40

    async def process(ctx):
        dut = bench.dut
        ctx.set(dut.link_active, 0b11)
        ctx.set(dut.enable, 0b01)
        await bench.say(ctx, 0, fifty, 0)
        await bench.next(ctx)  # nobody may tell
        ctx.set(dut.tell, 1)
        await ctx.tick().repeat(80)
        assert [told[1:] for told in bench.told] == [(0x0100, fifty, 0)]
        bench.told.clear()
        await bench.say(ctx, 0, fifty, 0)
        await bench.next(ctx)  # the same once more
        await bench.say(ctx, 1, forty, forty)
        await bench.next(ctx)  # of a port that must not
        ctx.set(dut.enable, 0b11)
        await bench.say(ctx, 1, forty, forty, code=0x7F)
        await bench.say(ctx, 1, forty, forty, life=1)
        await bench.next(ctx)  # another message, another life
        await bench.say(ctx, 1, forty, forty)
        await bench.next(ctx, (forty, forty))
        ctx.set(dut.link_active, 0b01)
        await bench.next(ctx, (fifty, 0))
        ctx.set(dut.link_active, 0b11)
        await bench.next(ctx)
        ctx.set(dut.enable, 0b10)
        await bench.next(ctx, (0, 0))
        # Who may tell again begins anew.
        await bench.say(ctx, 1, forty, forty)
        await bench.next(ctx, (forty, forty))
        for tell in (0, 1):
            ctx.set(dut.tell, tell)
            await bench.next(ctx, *([(forty, forty)] if tell else []))

    bench.simulate(process)


def test_messages_keep_their_distance():
    """However often slots speak, and the last word is told."""
    rng, spacing = random.Random(seed()), 500
    bench = Bench(64, 1, 0, spacing=spacing)

    async def process(ctx):
        for name in ("link_active", "enable", "tell"):
            ctx.set(getattr(bench.dut, name), 1)
        for _ in range(300):
            latency = REQUIRED | rng.randrange(1024)
            await bench.say(ctx, 0, latency, latency)
            await ctx.tick().repeat(rng.randrange(1, 40))
        await ctx.tick().repeat(2 * spacing)
        cycles = [cycle for cycle, *_ in bench.told]
        assert len(cycles) > 6 and bench.told[-1][2:] == (latency, latency)
        assert min(b - a for a, b in zip(cycles, cycles[1:], strict=False)) >= spacing

    bench.simulate(process)


def test_arguments():
    for own in (-1, 31_745, 1.5):
        with pytest.raises(ValueError, match="own must be an integer from 0 to 31744, not"):
            LatencyGatherer(64, 1, own=own, spacing=1)
