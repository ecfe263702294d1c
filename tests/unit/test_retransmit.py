"""dxpu.fabric.retransmit and replay against plain accounts of what was sent and acknowledged."""

import itertools
import random
from collections import deque

import pytest

from dxpu.fabric.packetizer import Packetizer
from dxpu.fabric.replay import ReplayMemory, cells_for
from dxpu.fabric.retransmit import TRANSMISSIONS, Retransmitter
from dxpu_sim.testbench import (
    check_stream, collect_packets, count_pulses, seed, simulate,
)

UNIT = 64  # cycles


class Peers:
    """Frames of each session as a list of cells, oldest first; checks what the hardware does."""

    def __init__(self, dut, sessions):
        self._dut = dut
        self.kept = [deque() for _ in range(sessions)]      # not acknowledged
        self.released = [deque() for _ in range(sessions)]  # acknowledged, not freed
        self.repeats = []                                   # (session, cell, probe)
        self.following = {}                                 # by session
        self.freed = []

    async def watch(self, ctx):
        dut = self._dut
        async for *_, free, cell in ctx.tick().sample(
                dut.free.valid & dut.free.ready, dut.free.payload):
            if free:
                assert any(q and q[0] == cell for q in self.released), "not the oldest of any"
                next(q for q in self.released if q and q[0] == cell).popleft()
                self.freed.append(cell)

    async def step(self, ctx, *, take=True):
        """A cycle, in which a repetition that is offered is taken."""
        dut = self._dut
        if take and ctx.get(dut.repeat_valid):
            repeat = ctx.get(dut.repeat)
            kept = self.kept[repeat.session]
            assert repeat.cell in kept, "was acknowledged"
            # Where it goes on, or at the oldest.
            assert repeat.cell in (kept[0], self.following.get(repeat.session)), "out of order"
            place = kept.index(repeat.cell) + 1
            self.following[repeat.session] = kept[place] if place < len(kept) else None
            self.repeats.append((repeat.session, repeat.cell, repeat.probe))
            ctx.set(dut.repeat_take, 1)
        await ctx.tick()
        ctx.set(dut.repeat_take, 0)

    async def store(self, ctx, session, cell, *, epoch=None):
        dut = self._dut
        now = ctx.get(dut.epoch[session])
        if self.kept[session] and self.following.get(session, 0) is None:
            del self.following[session]  # the repetition was over: this one may not be in it
        self.kept[session].append(cell)
        ctx.set(dut.stored, dict(session=session, cell=cell,
                                 epoch=now if epoch is None else epoch))
        ctx.set(dut.stored_strobe, 1)
        await ctx.tick()
        ctx.set(dut.stored_strobe, 0)

    async def acknowledge(self, ctx, session, count, *, nak=False):
        dut = self._dut
        self.released[session].extend(self.kept[session].popleft() for _ in range(count))
        ctx.set(dut.acked[session], count)
        ctx.set(dut.back, nak << session)
        await ctx.tick()
        ctx.set(dut.acked[session], 0)
        ctx.set(dut.back, 0)


def build(**options):
    dut = Retransmitter(**dict(sessions=3, paths=2, cells=16) | options)
    return dut, Peers(dut, 3)


def test_a_nak_repeats_everything_that_is_left_in_order():
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        for cell, session in ((3, 0), (7, 1), (1, 0), (15, 0), (0, 1), (9, 0)):
            await peers.store(ctx, session, cell)
        await peers.acknowledge(ctx, 0, 1, nak=True)
        for _ in range(60):
            await peers.step(ctx)
        assert peers.repeats == [(0, 1, 0), (0, 15, 0), (0, 9, 0)]
        assert peers.freed == [3]
        assert [ctx.get(u) for u in dut.unacked] == [3, 2, 0]

    simulate(dut, process, background=[peers.watch, check_stream(dut.free, "free")])


def test_waits_double_then_the_path_changes_then_the_session_fails():
    dut, peers = build()
    times, totals = [], {}

    async def answer(ctx):
        ctx.set(dut.free.ready, 1)
        now = 0
        while True:
            now += 1
            if ctx.get(dut.repeat_valid):
                times.append((now, ctx.get(dut.path[1])))
            await peers.step(ctx)

    async def process(ctx):
        ctx.set(dut.wait, 3)
        for cell in (4, 5, 6):
            await peers.store(ctx, 1, cell)
        await ctx.tick().until(dut.failed[1])
        peers.released[1], peers.kept[1] = peers.kept[1], deque()
        await ctx.tick().repeat(30)
        assert peers.freed == [4, 5, 6] and ctx.get(dut.failed) == 0b010
        # What had its number before is forgotten as it comes; after the open all is as at first.
        await peers.store(ctx, 1, 8, epoch=0)
        peers.released[1].append(peers.kept[1].pop())
        await ctx.tick().repeat(20)
        assert peers.freed == [4, 5, 6, 8]
        ctx.set(dut.open, 0b010)
        await ctx.tick()
        ctx.set(dut.open, 0)
        await ctx.tick()
        assert ctx.get(dut.failed) == 0
        await peers.store(ctx, 1, 9)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.unacked[1]) == 1

    simulate(dut, process, background=[peers.watch, answer, count_pulses(dut, totals)])
    assert {(s, c, p) for s, c, p in peers.repeats} == {(1, 4, 1)}, "only the oldest, as a probe"
    assert [path for _, path in times] == [0] * (TRANSMISSIONS - 1) + [1] * TRANSMISSIONS
    waits = [b - a for (a, _), (b, _) in itertools.pairwise(times)]
    for wait, units in zip(waits, (6, 12, 24, 3, 6, 12), strict=True):
        assert units * UNIT <= wait <= (units + 1) * UNIT + 12, (waits, units)
    assert totals["timeout"] == 7 and totals["failed"] == 1



def test_a_probe_that_is_acknowledged_brings_all_the_others():
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        ctx.set(dut.wait, 2)
        for cell in (4, 5, 6):
            await peers.store(ctx, 2, cell)
        await ctx.tick().until(dut.repeat_valid)
        await peers.step(ctx)
        await ctx.tick().repeat(40)
        assert peers.repeats == [(2, 4, 1)] and not ctx.get(dut.repeat_valid)
        await peers.acknowledge(ctx, 2, 1)
        for _ in range(40):
            await peers.step(ctx)
        assert peers.repeats[1:] == [(2, 5, 0), (2, 6, 0)]

    simulate(dut, process, background=[peers.watch])


def test_random_orders():
    """Whatever happens when: what is repeated is kept, in order, up to the newest; all is freed."""
    rng = random.Random(seed())
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.wait, 1)
        free_cells = list(range(16))
        for _ in range(4000):
            step, session = rng.random(), rng.randrange(3)
            free_cells += peers.freed
            peers.freed.clear()
            ctx.set(dut.free.ready, rng.random() < 0.6)
            if step < 0.15 and free_cells:
                await peers.store(ctx, session, free_cells.pop(rng.randrange(len(free_cells))))
            elif step < 0.25 and ctx.get(dut.unacked[session]) == len(peers.kept[session]):
                count = rng.randint(0, len(peers.kept[session]))
                nak = count < len(peers.kept[session]) and rng.random() < 0.6
                await peers.acknowledge(ctx, session, count, nak=nak)
            else:
                await peers.step(ctx, take=step < 0.6)
            assert not ctx.get(dut.failed), "acknowledgements come often enough"
        ctx.set(dut.free.ready, 1)
        for session in range(3):
            await peers.acknowledge(ctx, session, len(peers.kept[session]))
        await ctx.tick().repeat(150)
        assert sorted(free_cells + peers.freed) == list(range(16))

    simulate(dut, process, background=[peers.watch, check_stream(dut.free, "free")])
    assert len(peers.repeats) > 100
    assert {session for session, *_ in peers.repeats} == {0, 1, 2}


@pytest.mark.parametrize("width", [32, 64, 512])
def test_frames_stay_until_they_are_freed(width):
    """Frames of random sizes, read again in any order while others are written and freed."""
    rng = random.Random(seed())
    cell = max(4, 128 * 8 // width)
    cells = 2 ** (2 * 1034 * 32 // width // cell).bit_length()
    dut = ReplayMemory(width, cells=cells, cell=cell)
    lanes, kept, got, spare = width // 32, {}, [], []

    async def write(ctx):
        tlps = [rng.randbytes(4 * rng.choice([3, 4, 5, rng.randint(3, 60)]))
                for _ in range(rng.choice([0, 1, 1, 2, rng.randint(3, 31)]))]
        need = cells_for(len(tlps), sum(len(t) for t in tlps) // 4, width=width, cell=cell)
        if need > ctx.get(dut.spare):
            return
        ctx.set(dut.reserve, need)
        await ctx.tick()
        ctx.set(dut.reserve, 0)
        beats = [(t[i:i + 4 * lanes], i + 4 * lanes >= len(t))
                 for t in tlps for i in range(0, len(t), 4 * lanes)]
        # A frame may begin with its first beat, or before it.
        apart = not beats or rng.getrandbits(1)
        first, argument = ctx.get(dut.next), rng.getrandbits(32)
        ctx.set(dut.begin, 1)
        ctx.set(dut.reserved, need)
        ctx.set(dut.note, dict(argument=argument, count=len(tlps)))
        if apart:
            ctx.set(dut.end, not beats)
            await ctx.tick()
            ctx.set(dut.begin, 0)
        for n, (part, last) in enumerate(beats):
            while rng.random() < 0.2 and not ctx.get(dut.begin):
                await ctx.tick()
            ctx.set(dut.write, 1)
            ctx.set(dut.data, int.from_bytes(part, "little"))
            ctx.set(dut.dwords, len(part) // 4)
            ctx.set(dut.last, last)
            ctx.set(dut.end, n == len(beats) - 1)
            await ctx.tick()
            ctx.set(dut.begin, 0)
            ctx.set(dut.write, 0)
        ctx.set(dut.end, 0)
        kept[first] = (tlps, argument)

    async def read(ctx):
        first = rng.choice(list(kept))
        tlps, argument = kept[first]
        ctx.set(dut.look.payload, first)
        ctx.set(dut.look.valid, 1)
        await ctx.tick().until(dut.look.ready)
        ctx.set(dut.look.valid, 0)
        ctx.set(dut.seen.ready, 1)
        seen, = await ctx.tick().sample(dut.seen.payload).until(dut.seen.valid)
        ctx.set(dut.seen.ready, 0)
        assert (seen.argument, seen.count) == (argument, len(tlps))
        if tlps:
            got.clear()
            ctx.set(dut.read, 1)
            ctx.set(dut.read_cell, first)
            ctx.set(dut.read_count, len(tlps))
            await ctx.tick()
            ctx.set(dut.read, 0)
            assert ctx.get(dut.reading)
            await collect_packets(dut.o, len(tlps), got, rng=rng, density=0.8)(ctx)
            assert [p.data for p in got] == tlps
            assert not ctx.get(dut.reading)

    async def free(ctx):
        first = rng.choice(list(kept))
        del kept[first]
        ctx.set(dut.free.payload, first)
        ctx.set(dut.free.valid, 1)
        await ctx.tick().until(dut.free.ready)
        ctx.set(dut.free.valid, 0)

    async def process(ctx):
        await ctx.tick().repeat(cells + 2)
        assert ctx.get(dut.spare) == cells
        for _ in range(250):
            step = rng.random()
            if step < 0.5 or not kept:
                await write(ctx)
            elif step < 0.75:
                await read(ctx)
            else:
                await free(ctx)
            spare.append(ctx.get(dut.spare))
        while kept:
            await free(ctx)
        await ctx.tick().repeat(3 * cells)
        assert ctx.get(dut.spare) == cells, "cells were lost"

    simulate(dut, process, background=[check_stream(dut.o, "o")])
    assert min(spare) < cells // 4


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="cells must be a power of two of at least 2, not 63"):
        ReplayMemory(64, cells=63, cell=32)
    with pytest.raises(ValueError, match="cell must be a power of two of at least 4, not 2"):
        ReplayMemory(64, cells=64, cell=2)
    with pytest.raises(ValueError, match=r"two of the largest TLPs \(1034 beats\), not 512"):
        Packetizer(64, depth=1024, cells=64, cell=8)
