"""dxpu.fabric.contexts: words of many sessions, and who walks over them."""

import itertools
import random

import pytest
from amaranth import *
from amaranth.lib import data

from dxpu.fabric.contexts import MOST, UNIT, Fetched, Owned, Scan, Sweep, Words
from tests.support.testbench import seed, simulate


@pytest.mark.parametrize("depth, reads", [(1, 1), (3, 2), (64, 3)])
def test_words_are_read_at_once_and_zero_after_a_reset(depth, reads):
    """Random words, at all ports; with resets, before which the memory is full of other words."""
    rng = random.Random(seed())
    shape = data.StructLayout({"one": 5, "other": 9})
    m, reset = Module(), Signal()
    dut = Words(shape, depth=depth, reads=reads)
    m.submodules.dut = ResetInserter(reset)(dut)

    async def look(ctx, model):
        for at, word in zip(dut.at, dut.word, strict=True):
            place = rng.randrange(depth)
            ctx.set(at, place)
            assert ctx.get(word.as_value()) == model[place]

    async def process(ctx):
        for _ in range(3):
            # What is put before all are ready changes nothing.
            for _ in range(depth):
                assert not ctx.get(dut.ready)
                ctx.set(dut.put, rng.getrandbits(1))
                ctx.set(dut.new.as_value(), rng.getrandbits(14))
                ctx.set(dut.where, rng.randrange(depth))
                await ctx.tick()
            model = [0] * depth
            ctx.set(dut.put, 0)
            for place in range(depth):
                for at, word in zip(dut.at, dut.word, strict=True):
                    ctx.set(at, place)
                    assert ctx.get(word.as_value()) == 0
            for _ in range(10 * depth):
                assert ctx.get(dut.ready)
                where, new, put = rng.randrange(depth), rng.getrandbits(14), rng.random() < 0.7
                ctx.set(dut.put, put)
                ctx.set(dut.where, where)
                ctx.set(dut.new.as_value(), new)
                await look(ctx, model)  # as it is before it is written
                await ctx.tick()
                if put:
                    model[where] = new
            await look(ctx, model)
            ctx.set(reset, 1)
            await ctx.tick().repeat(rng.randint(1, 3))
            ctx.set(reset, 0)

    simulate(m, process)


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("depth", [1, 3, 64])
def test_a_fetched_word_has_what_was_written_meanwhile_and_is_zero_after_a_reset(depth, block):
    """Random words, half of them fetched in the cycle in which they are written."""
    rng = random.Random(seed())
    m, reset = Module(), Signal()
    dut = Fetched(data.StructLayout({"one": 5, "other": 9}), depth=depth, block=block)
    m.submodules.dut = ResetInserter(reset)(dut)

    async def process(ctx):
        for _ in range(3):
            for _ in range(depth):
                assert not ctx.get(dut.ready)
                await ctx.tick()
            model = [0] * depth
            for _ in range(10 * depth):
                assert ctx.get(dut.ready)
                where, new, put = rng.randrange(depth), rng.getrandbits(14), rng.random() < 0.7
                at = rng.choice([where, rng.randrange(depth)])
                ctx.set(dut.put, put)
                ctx.set(dut.where, where)
                ctx.set(dut.new.as_value(), new)
                ctx.set(dut.at, at)
                if put:
                    model[where] = new
                await ctx.tick()
                assert ctx.get(dut.word.as_value()) == model[at]
            ctx.set(dut.put, 0)
            ctx.set(reset, 1)
            await ctx.tick().repeat(rng.randint(1, 3))
            ctx.set(reset, 0)

    simulate(m, process)


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("depth", [1, 3, 64])
def test_an_owned_word_is_acted_upon_two_cycles_after_it_is_picked(depth, block):
    """Random picks, some of which are followed by a write; with resets."""
    rng = random.Random(seed())
    m, reset = Module(), Signal()
    dut = Owned(data.StructLayout({"one": 5, "other": 9}), depth=depth, block=block)
    m.submodules.dut = ResetInserter(reset)(dut)

    async def process(ctx):
        for _ in range(3):
            for _ in range(depth):
                assert not ctx.get(dut.ready)
                await ctx.tick()
            model = [0] * depth
            for _ in range(20 * depth):
                assert ctx.get(dut.ready)
                picked = rng.randrange(depth)
                ctx.set(dut.pick, picked)
                ctx.set(dut.picks, 1)
                await ctx.tick()
                # Whatever would be picked meanwhile: it is that session's turn.
                ctx.set(dut.picks, 0)
                ctx.set(dut.pick, rng.randrange(depth))
                assert (ctx.get(dut.ready), ctx.get(dut.loads), ctx.get(dut.acts)) == (0, 1, 0)
                await ctx.tick()
                assert (ctx.get(dut.ready), ctx.get(dut.loads), ctx.get(dut.acts)) == (0, 0, 1)
                assert ctx.get(dut.session) == picked
                assert ctx.get(dut.word.as_value()) == model[picked]
                if rng.random() < 0.5:
                    model[picked] = rng.getrandbits(14)
                    ctx.set(dut.put, 1)
                    ctx.set(dut.new.as_value(), model[picked])
                await ctx.tick()
                ctx.set(dut.put, 0)
                for _ in range(rng.choice([0, 0, 2])):
                    assert (ctx.get(dut.ready), ctx.get(dut.acts)) == (1, 0)
                    await ctx.tick()
            ctx.set(reset, 1)
            await ctx.tick().repeat(rng.randint(1, 3))
            ctx.set(reset, 0)

    simulate(m, process)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 33, 64])
def test_a_sweep_calls_each_once_in_a_turn(count):
    rng = random.Random(seed())
    dut, turns, calls, pace = Sweep(count=count), 4, [], 4

    async def process(ctx):
        now = 0
        while len(calls) < turns * count:
            if ctx.get(dut.valid):
                session = ctx.get(dut.session)
                calls.append((now, session))
                for _ in range(rng.randrange(3)):
                    await ctx.tick()
                    now += 1
                    assert (ctx.get(dut.valid), ctx.get(dut.session)) == (1, session)
                ctx.set(dut.done, 1)
            await ctx.tick()
            now += 1
            ctx.set(dut.done, 0)

    simulate(dut, process)
    assert [session for _, session in calls] == turns * list(range(count))
    assert all(b - a >= pace for (a, _), (b, _) in itertools.pairwise(calls))
    assert dut.step == max(1, {33: 4, 64: 4, 17: 2}.get(count, 1))
    for (a, _), (b, _) in zip(calls, calls[count:], strict=False):
        assert b - a == UNIT * dut.step, "what takes less than the pace does not make a turn longer"


def test_a_sweep_waits_until_it_is_done():
    dut = Sweep(count=64)

    async def process(ctx):
        now, last = 0, 0
        for session in range(64):
            while not ctx.get(dut.valid):
                await ctx.tick()
                now += 1
            assert ctx.get(dut.session) == session, "none is passed over"
            assert session == 0 or now - last >= 100
            last = now
            for _ in range(100):
                assert ctx.get(dut.valid) and ctx.get(dut.session) == session
                await ctx.tick()
                now += 1
            ctx.set(dut.done, 1)
            await ctx.tick()
            now += 1
            ctx.set(dut.done, 0)
            assert not ctx.get(dut.valid)

    simulate(dut, process)


@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_a_scan_finds_what_is_set_and_stays(count):
    """Bits are written while it stays, goes on, and skips; after a reset all are zero."""
    rng = random.Random(seed())
    m, reset = Module(), Signal()
    dut, found = Scan(count=count), set()
    m.submodules.dut = ResetInserter(reset)(dut)

    async def write(ctx, bits, place, bit):
        ctx.set(dut.where, place)
        ctx.set(dut.bit, bit)
        ctx.set(dut.put, 1)
        return bits & ~(1 << place) | bit << place

    async def process(ctx):
        bits = 0
        await ctx.tick().repeat(count)
        for _ in range(40 * count + 200):
            at, now = ctx.get(dut.at), bits
            assert ctx.get(dut.found) == now >> at & 1
            hold, skip = rng.random() < 0.2, rng.random() < 0.1
            ctx.set(dut.hold, hold)
            ctx.set(dut.skip, skip)
            ctx.set(dut.put, 0)
            if rng.random() < 0.2:
                bits = await write(ctx, bits, rng.choice([rng.randrange(count), at]),
                                   rng.getrandbits(1))
            await ctx.tick()
            stays = not skip and (now >> at & 1 or hold)
            assert ctx.get(dut.at) == (at if stays else (at + 1) % count)
            if now >> at & 1:
                found.add(at)
        ctx.set(dut.put, 0)
        ctx.set(dut.hold, 0)
        ctx.set(dut.skip, 0)
        # After a reset none is set; alone, each is found in a turn.
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        for _ in range(2 * count):
            assert not ctx.get(dut.found)
            await ctx.tick()
        for n in rng.sample(range(count), count):
            await write(ctx, 0, n, 1)
            await ctx.tick()
            ctx.set(dut.put, 0)
            for _ in range(count - 1):
                if not ctx.get(dut.found):
                    await ctx.tick()
            assert ctx.get(dut.found) and ctx.get(dut.at) == n
            await write(ctx, 0, n, 0)
            await ctx.tick()

    simulate(m, process)
    assert len(found) >= min(3, count)


def test_arguments():
    for count in (0, MOST + 1, "2"):
        with pytest.raises(ValueError, match=f"count must be 1 to 64, not {count!r}"):
            Sweep(count=count)
