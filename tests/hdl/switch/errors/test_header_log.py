"""dxpu.switch.errors.header_log: headers wait whole, in slots of their own, and are written in
order."""

import random

import pytest

from dxpu.switch.errors.header_log import HeaderCapture, HeaderWriter
from dxpu.switch.errors.types import HEADERS_KEPT, ErrorOrigin
from tests.support.testbench import seed, simulate


@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_what_is_kept_stays_until_it_is_free(width):
    """Random TLPs, with and without prefixes; slots become free in any order."""
    rng = random.Random(seed())
    dut, lanes = HeaderCapture(width), width // 32
    kept, most, lost = {}, 0, 0

    async def process(ctx):
        nonlocal most, lost
        for _ in range(400):
            prefixes = rng.choice([0, 0, 0, 1, 4])
            words = [rng.getrandbits(32) for _ in range(prefixes + rng.choice([3, 4, 4, 12]))]
            ctx.set(dut.prefixed, prefixes > 0)
            beats = -(-len(words) // lanes)
            for beat in range(beats):
                while rng.random() < 0.2:
                    await ctx.tick()
                    ctx.set(dut.reader.free, 0)
                lane = words[beat * lanes:(beat + 1) * lanes]
                ctx.set(dut.data, sum(w << 32 * n for n, w in enumerate(lane)))
                ctx.set(dut.beat, min(beat, 8 // lanes + 1))
                ctx.set(dut.last, beat == beats - 1)
                ctx.set(dut.strobe, 1)
                if beat == beats - 1:
                    if ctx.get(dut.kept):
                        slot = ctx.get(dut.slot)
                        assert slot not in kept
                        kept[slot] = prefixes, words
                    else:
                        lost += 1
                        # There was room for no other.
                        assert len(kept) >= (HEADERS_KEPT // 2 if prefixes else 5) - 1
                await ctx.tick()
                ctx.set(dut.strobe, 0)
                ctx.set(dut.reader.free, 0)
            most = max(most, len(kept))
            for slot, (prefixes, words) in kept.items():
                dword = rng.randrange(min(prefixes + 4, len(words)))
                ctx.set(dut.reader.slot, slot)
                ctx.set(dut.reader.dword, dword)
                assert ctx.get(dut.reader.word) == words[dword]
            if kept and rng.random() < 0.55:
                done = rng.sample(sorted(kept), rng.randint(1, min(2, len(kept))))
                ctx.set(dut.reader.free, sum(1 << slot for slot in done))
                for slot in done:
                    del kept[slot]
                await ctx.tick()
                ctx.set(dut.reader.free, 0)

    simulate(dut, process)
    print(most, lost)
    assert most > 4 and lost > 0


def test_headers_are_written_whole():
    """Four dwords, the last one 0 if there are three; four of prefixes if there are any; then the
    function is done, and its slot free. Those that come at once, one after the other."""
    rng = random.Random(seed())
    dut = HeaderWriter(8)
    stored, written, done, freed = {}, [], [], []
    other = [0x60, 0x11, 0x22, 0x33]


    async def watch(ctx):
        dut_o, dut_done = dut.o, dut.done
        while True:
            ctx.set(dut_o.ready, rng.random() < 0.7)
            ctx.set(dut_done.ready, rng.random() < 0.5)
            for n, reader in enumerate(dut.readers):
                words = stored.get((n, ctx.get(reader.slot)), [0] * 8)
                ctx.set(reader.word, words[ctx.get(reader.dword)])
            if ctx.get(dut_o.valid) and ctx.get(dut_o.ready):
                p = ctx.get(dut_o.p)
                written.append((p.function, p.register, p.value))
            if ctx.get(dut_done.valid) and ctx.get(dut_done.ready):
                done.append(ctx.get(dut_done.payload))
            freed.extend((n, s) for n, reader in enumerate(dut.readers)
                         for s in range(HEADERS_KEPT) if ctx.get(reader.free) >> s & 1)
            if ctx.get(dut.other_done):
                freed.append("other")
            await ctx.tick()

    async def main(ctx):
        ctx.set(dut.header, other)
        await ctx.tick()
        expected = {}
        for function, (origin, slot, prefixes) in enumerate((
                (ErrorOrigin.HOST, 0, 0), (ErrorOrigin.SLOT, 0, 2), (ErrorOrigin.HOST, 6, 4),
                (ErrorOrigin.OTHER, 0, 0), (ErrorOrigin.SLOT, 7, 0))):
            words = [rng.getrandbits(32) for _ in range(8)]
            if origin is ErrorOrigin.OTHER:
                words = other
            else:
                stored[origin.value, slot] = words
            swapped = [int.from_bytes(w.to_bytes(4, "little"), "big") for w in words]
            head = swapped[prefixes:prefixes + 4]
            if not words[prefixes] >> 5 & 1:
                head[3] = 0
            expected[function] = [(0x47 + n, w) for n, w in enumerate(head)] + [
                (0x4E + n, swapped[n] if n < prefixes else 0) for n in range(4)] * (prefixes > 0)
            ctx.set(dut.i.p, dict(origin=origin, slot=slot, function=function,
                                  prefix_dwords=prefixes))
            ctx.set(dut.i.valid, 1)
            await ctx.tick()
            ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(150)
        for function, words in expected.items():
            assert [w[1:] for w in written if w[0] == function] == words
        assert sorted(done) == list(range(5))
        assert len(freed) == 5 and set(freed) == {(0, 0), (1, 0), (0, 6), "other", (1, 7)}

    simulate(dut, main, background=[watch])
