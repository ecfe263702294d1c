"""dxpu.fabric.credit.credits: what was granted may be used and nothing else, whatever frames
come."""

import random

import pytest

from dxpu.fabric.credit.credits import CreditAccounts, CreditGrants, grants_for
from dxpu.tlp.types import TlpClass
from tests.support.testbench import count_pulses, seed, simulate

P, NP, CPL = TlpClass
ROWS = 3
GENERATION = [7, 0x81, 0xFF]


class Accounts:
    """Drives :class:`CreditAccounts`."""

    def __init__(self, ctx, dut):
        self._ctx, self._dut, self._rng = ctx, dut, random.Random(seed())
        ctx.set(dut.open, -1)
        for n, generation in enumerate(GENERATION):
            ctx.set(dut.generations[n], generation)

    async def begin(self, row, seq):
        ctx, dut = self._ctx, self._dut
        ctx.set(dut.numbered, dict(row=row, seq=seq))
        ctx.set(dut.numbered_strobe, 1)
        await ctx.tick()
        ctx.set(dut.numbered_strobe, 0)

    async def limits(self, row, ack, limits, *, generation=None):
        """``limits``: header and data limit by class; they count when this returns."""
        await self.strobe(row, ack, limits, generation=generation)
        await self._ctx.tick().repeat(2)

    async def strobe(self, row, ack, limits, *, generation=None):
        ctx, dut = self._ctx, self._dut
        generation = GENERATION[row] if generation is None else generation
        entries = [dict(cls=n, generation=generation, header_limit=0, data_limit=0)
                   for n in range(3)]
        for cls, (header, units) in limits.items():
            entries[cls.value] |= dict(header_limit=header % 65536, data_limit=units % 65536)
        ctx.set(dut.limits, dict(row=row, ack=ack % 2**24, entries=entries,
                                 mask=sum(1 << cls.value for cls in limits)))
        ctx.set(dut.limits_strobe, 1)
        await ctx.tick()
        ctx.set(dut.limits_strobe, 0)

    def ok(self, row, cls, units=0, life=0):
        ctx, dut = self._ctx, self._dut
        answers = []
        for name in ("i", "head"):
            ctx.set(getattr(dut, name), dict(row=row, cls=cls, units=units, life=life))
            answers.append(ctx.get(getattr(dut, f"{name}_ok")))
        assert answers[0] == answers[1]
        return bool(answers[0])

    async def spend(self, row, cls, units=0, life=0):
        ctx, dut = self._ctx, self._dut
        tlp, other = dict(row=row, cls=cls, units=units, life=life), dict(
            row=self._rng.randrange(ROWS), cls=self._rng.choice(list(TlpClass)),
            units=self._rng.randint(0, 40), life=life)
        ctx.set(dut.spent, tlp)
        shown = self._rng.choice([(tlp, other), (other, tlp), (tlp, tlp)])
        for name, meta in zip(("i", "head"), shown, strict=True):
            ctx.set(getattr(dut, name), meta)
        ctx.set(dut.spent_strobe, 1)
        *_, woken = await ctx.tick().sample(dut.wake)
        ctx.set(dut.spent_strobe, 0)
        return woken


def accounts(process):
    dut, pulses = CreditAccounts(rows=ROWS), {}

    async def run(ctx):
        await process(ctx, Accounts(ctx, dut), dut)

    simulate(dut, run, background=[count_pulses(dut, pulses)])
    return pulses["refused"]


def test_nothing_leaves_before_limits_of_this_life():
    """Frames from before the peer knew of it, of other generations, and for nobody, do nothing."""
    async def process(ctx, it, dut):
        assert not any(it.ok(1, cls) for cls in TlpClass)
        await it.limits(1, 0, {P: (9, 9)})  # no life was asked for
        assert not it.ok(1, P)
        await it.begin(1, 0xFFFFFF)
        await it.limits(1, 0xFFFFFF, {P: (9, 9)})  # does not acknowledge it
        await it.limits(1, 0, {P: (9, 9)}, generation=0x80)
        await it.limits(1, 0, {P: (9, 9)}, generation=~0x81 & 255)  # "not yet"
        await it.limits(63, 0, {P: (9, 9)}, generation=0x81)
        assert not it.ok(1, P)
        await it.limits(1, 0, {P: (1, 9)})
        assert it.ok(1, P, 9) and not it.ok(1, P, 10)
        assert not it.ok(1, NP) and not it.ok(0, P)
        # The next life, in which nothing was used yet.
        await it.spend(1, P, 4)
        assert not it.ok(1, P)
        ctx.set(dut.lives[1], 1)
        await ctx.tick().repeat(2)
        await it.limits(1, 2, {P: (9, 9)})
        assert not it.ok(1, P, life=1)
        await it.begin(1, 5)
        await it.limits(1, 5, {P: (9, 9)})
        assert not it.ok(1, P, life=1)
        await it.limits(1, 6, {P: (1, 9)})
        assert it.ok(1, P, 9, life=1)
    assert accounts(process) == 3


def test_tlps_that_nobody_will_send_may_pass():
    async def process(ctx, it, dut):
        ctx.set(dut.lives[0], 5)
        assert not it.ok(0, P, life=5)
        assert it.ok(0, P, life=4)
        ctx.set(dut.open, 0)
        assert it.ok(0, P, life=5)
    accounts(process)


def test_limits_are_signed_differences_and_wrap():
    """Old limits take nothing that was not granted, and what they take comes back."""
    async def process(ctx, it, dut):
        await it.begin(0, 10)
        for total in range(600):  # 300 units each: the counters wrap twice
            await it.limits(0, 11, {CPL: (total + 2, 300 * total + 300)})
            assert it.ok(0, CPL, 300) and not it.ok(0, CPL, 301)
            await it.spend(0, CPL, 300)
            assert it.ok(0, CPL, 0) and not it.ok(0, CPL, 1)
            await it.limits(0, 11, {CPL: (total, 300 * total - 300)})
            assert not it.ok(0, CPL, 0)
    assert accounts(process) == 0


def test_first_limits_of_a_life_wait_for_a_cycle_in_which_nothing_is_spent():
    """They count all at once, when it is said; what comes meanwhile does nothing, and not at all
    if the life ends, and another one that nobody heard of with it."""
    async def process(ctx, it, dut):
        async def spends(cycles):
            for _ in range(cycles):
                assert not await it.spend(0, P)
        await it.begin(0, 0)
        await it.limits(0, 1, {P: (99, 99), CPL: (9, 9)})
        for n in range(2):
            await it.spend(0, CPL)
            await it.begin(1, 7 + n)
            await it.strobe(1, 8 + n, {P: (1, 3), CPL: (5, 5)})
            await spends(3)
            await it.strobe(0, 2, {CPL: (1, 0)})  # ignored
            await spends(3)
            assert not it.ok(1, P, life=2 * n) and not it.ok(1, CPL, life=2 * n) and it.ok(0, CPL)
            if n == 0:
                ctx.set(dut.lives[1], 2)
                assert await it.spend(0, P) == 0b10
                await ctx.tick().repeat(5)
                assert not it.ok(1, P, life=2) and not it.ok(1, CPL, life=2)
        assert ctx.get(dut.wake) == 0b10
        await ctx.tick()
        assert ctx.get(dut.wake) == 0
        assert it.ok(1, P, 3, life=2) and not it.ok(1, P, 4, life=2)
        assert it.ok(1, CPL, 5, life=2) and not it.ok(1, NP, life=2)
        await it.limits(0, 2, {CPL: (2, 0)})
        assert not it.ok(0, CPL)
    assert accounts(process) == 0


def test_random_orders_of_limits():
    """Whatever subset of frames comes, late or doubled: never more than was granted."""
    rng = random.Random(seed())

    async def process(ctx, it, dut):
        freed, used, told = [[0, 0] for _ in range(3)], [[0, 0] for _ in range(3)], []
        await it.begin(2, 0)
        sent = []
        for _ in range(1500):
            cls = rng.choice(list(TlpClass))
            n = cls.value
            told.append({c: (freed[c.value][0] + 4, freed[c.value][1] + 60) for c in TlpClass})
            told = told[-6:]
            if rng.random() < 0.5:
                choice = rng.choice(told)
                await it.limits(2, 1, {c: choice[c] for c in rng.sample(list(TlpClass), 2)})
            units = rng.randint(0, 40)
            if it.ok(2, cls, units):
                await it.spend(2, cls, units)
                used[n][0] += 1
                used[n][1] += units
                sent.append((n, units))
                assert used[n][0] <= freed[n][0] + 4 and used[n][1] <= freed[n][1] + 60
            if sent and rng.random() < 0.5:
                n, units = sent.pop(0)
                freed[n][0] += 1
                freed[n][1] += units
        # The newest limits give everything back.
        for n, units in sent:
            freed[n][0] += 1
            freed[n][1] += units
        await it.limits(2, 1, {c: (freed[c.value][0] + 4, freed[c.value][1] + 60)
                               for c in TlpClass})
        for cls in TlpClass:
            assert it.ok(2, cls, 60) and not it.ok(2, cls, 61)
            for _ in range(4):
                assert it.ok(2, cls)
                await it.spend(2, cls)
            assert not it.ok(2, cls)
        assert min(u[0] for u in used) > 100
    assert accounts(process) == 0


INITIAL = ((8, 80), (4, 8), (6, 70))


def grants(process, **options):
    dut = CreditGrants(rows=ROWS, initial=INITIAL, **options)

    async def run(ctx):
        await process(ctx, dut)

    simulate(dut, run)


async def release(ctx, dut, row, cls, units):
    ctx.set(dut.released, dict(row=row, cls=cls, units=units))
    ctx.set(dut.released_strobe, 1)
    await ctx.tick()
    ctx.set(dut.released_strobe, 0)


def limits_of(ctx, dut, row):
    ctx.set(dut.row, row)
    return [(ctx.get(dut.limits[n].header), ctx.get(dut.limits[n].data)) for n in range(3)]


def test_grants_begin_anew_with_each_life_and_count_what_leaves():
    async def process(ctx, dut):
        for _ in range(2):
            ctx.set(dut.open, 0)
            await ctx.tick().repeat(3)
            ctx.set(dut.open, 0b110)
            # From the first cycle on: a frame may just be on its way.
            assert limits_of(ctx, dut, 1) == list(INITIAL)
            await ctx.tick().repeat(3)
            want = [list(pair) for pair in INITIAL]
            assert limits_of(ctx, dut, 1) == [tuple(w) for w in want]
            for cls, units in ((P, 32), (P, 0), (NP, 1), (CPL, 256), (P, 7)):
                await release(ctx, dut, 1, cls, units)
                await release(ctx, dut, 0, cls, units)  # closed
                want[cls.value][0] += 1
                want[cls.value][1] += units
                assert limits_of(ctx, dut, 1) == [tuple(w) for w in want]
            assert limits_of(ctx, dut, 2) == list(INITIAL)
        assert limits_of(ctx, dut, 0) == list(INITIAL)

    grants(process)


def test_limits_are_told_in_time_and_again():
    """What a frame has carried needs none of its own; without one it is told, and told twice."""
    period = 16

    async def process(ctx, dut):
        told = []

        async def wait(cycles):
            """Rows that frames are wanted for; they are sent."""
            seen = []
            ctx.set(dut.want.ready, 1)
            for _ in range(cycles):
                *_, valid, row = await ctx.tick().sample(dut.want.valid, dut.want.payload)
                if valid:
                    seen.append(row)
                    await tell(row, 7)
            return seen

        async def tell(row, mask):
            ctx.set(dut.told_row, row)
            ctx.set(dut.told_mask, mask)
            ctx.set(dut.told, 1)
            await ctx.tick()
            ctx.set(dut.told, 0)
            told.append(row)

        ctx.set(dut.open, 0b011)
        assert sorted(await wait(3 * period)) == [0, 1]
        assert sorted(await wait(18 * period)) == [0, 1], "once more"
        # From here on nothing, until the slow refresh.
        quiet = await wait(40 * period)
        assert not quiet
        await release(ctx, dut, 1, NP, 0)
        ctx.set(dut.row, 1)
        assert ctx.get(dut.due) == 0b010
        await tell(1, 0b010)  # with a frame that goes anyhow
        assert ctx.get(dut.due) == 0
        assert await wait(3 * period) in ([], [1])
        assert set(await wait(18 * period)) <= {1}
        assert sorted(set(await wait(16 * 17 * period))) == [0, 1], "refreshed"

    grants(process, period=period)


@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_what_is_granted_fits_however_it_is_mixed(width):
    rng = random.Random(seed())
    beats = 2048 * 8 // width

    def size(units):
        return -(-(40 + 16 * units) // (width // 8))

    headers, units = grants_for(width, beats, headers=8)
    assert units >= 32  # 512 bytes
    for _ in range(200):
        cuts = sorted(rng.randint(0, units) for _ in range(headers - 1))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, units], strict=True)]
        assert sum(map(size, parts)) <= beats
    headers, units = grants_for(width, 8192 // width, headers=16, units=2)
    assert units == 2 * headers and headers * size(2) <= 8192 // width
    with pytest.raises(ValueError, match="4 beats are not enough for 9 headers"):
        grants_for(width, 4, headers=9)
