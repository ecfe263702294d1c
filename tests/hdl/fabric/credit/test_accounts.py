"""dxpu.fabric.credit.accounts: what was granted may be used and nothing else, whatever frames
come."""

import random

from dxpu.fabric.credit.accounts import CreditAccounts
from dxpu.tlp.types import TlpClass
from tests.support.testbench import count_pulses, seed, simulate

P, NP, CPL = TlpClass
ROWS = 3
GENERATION = [7, 0x81, 0xFF]
#: Units of the largest TLP: posted or a completion, non-posted.
MOST, MOST_REQUEST = 40, 2


class Accounts:
    """Drives :class:`CreditAccounts`."""

    def __init__(self, ctx, dut):
        self._ctx, self._dut = ctx, dut
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
        """``limits``: header and data limit by class; they count when this returns. All three come
        in one frame, fewer in frames of their own. Returns rows that were woken."""
        generation = GENERATION[row] if generation is None else generation
        entries = {cls: dict(cls=cls.value, generation=generation, header_limit=header % 65536,
                             data_limit=units % 65536) for cls, (header, units) in limits.items()}
        frame, woken = dict(row=row, ack=ack % 2**24), 0
        if len(entries) == 3:
            return await self._frame(frame | dict(
                is_reply=1, credits=[entries[cls] for cls in TlpClass]), cycles=3)
        for entry in entries.values():
            woken |= await self._frame(frame | dict(crx=1, credit=entry), cycles=1)
        return woken

    async def _frame(self, frame, *, cycles):
        ctx, limits, woken = self._ctx, self._dut.limits, 0
        ctx.set(limits.payload, frame)
        ctx.set(limits.valid, 1)
        for n in range(cycles):
            *_, ready, wake = await ctx.tick().sample(limits.ready, self._dut.wake)
            assert ready == (n == cycles - 1)
            woken |= wake
        ctx.set(limits.valid, 0)
        *_, wake = await ctx.tick().sample(self._dut.wake)
        return woken | wake

    async def ok(self, row, cls, units=0, life=0):
        ctx, dut = self._ctx, self._dut
        ctx.set(dut.checked, dict(row=row, cls=cls, units=units, life=life))
        await ctx.tick()
        return bool(ctx.get(dut.ok))

    def sure(self, row, cls, units=0, life=0):
        ctx, dut = self._ctx, self._dut
        ctx.set(dut.incoming, dict(row=row, cls=cls, units=units, life=life))
        return bool(ctx.get(dut.sure))

    async def spend(self, row, cls, units=0, life=0):
        ctx, dut = self._ctx, self._dut
        ctx.set(dut.checked, dict(row=row, cls=cls, units=units, life=life))
        ctx.set(dut.consumed, 1)
        *_, woken = await ctx.tick().sample(dut.wake)
        ctx.set(dut.consumed, 0)
        return woken


def accounts(process):
    dut, pulses = CreditAccounts(rows=ROWS, most=(MOST, MOST_REQUEST)), {}

    async def run(ctx):
        await process(ctx, Accounts(ctx, dut), dut)

    simulate(dut, run, background=[count_pulses(dut, pulses)])
    return pulses["refused"]


def test_nothing_leaves_before_limits_of_this_life():
    """Frames from before the peer knew of it, of other generations, and for nobody, do nothing."""
    async def process(ctx, it, dut):
        assert not any([await it.ok(1, cls) for cls in TlpClass])
        await it.limits(1, 0, {P: (9, 9)})  # no life was asked for
        assert not await it.ok(1, P)
        await it.begin(1, 0xFFFFFF)
        await it.limits(1, 0xFFFFFF, {P: (9, 9)})  # does not acknowledge it
        await it.limits(1, 0, {P: (9, 9)}, generation=0x80)
        await it.limits(1, 0, {P: (9, 9)}, generation=~0x81 & 255)  # "not yet"
        await it.limits(63, 0, {P: (9, 9)}, generation=0x81)
        assert not await it.ok(1, P)
        await it.limits(1, 0, {P: (1, 9)})
        assert await it.ok(1, P, 9) and not await it.ok(1, P, 10)
        assert not await it.ok(1, NP) and not await it.ok(0, P)
        # The next life, in which nothing was used yet.
        await it.spend(1, P, 4)
        assert not await it.ok(1, P)
        ctx.set(dut.lives[1], 1)
        await ctx.tick().repeat(2)
        await it.limits(1, 2, {P: (9, 9)})
        assert not await it.ok(1, P, life=1)
        await it.begin(1, 5)
        await it.limits(1, 5, {P: (9, 9)})
        assert not await it.ok(1, P, life=1)
        await it.limits(1, 6, {P: (1, 9)})
        assert await it.ok(1, P, 9, life=1)
    assert accounts(process) == 3


def test_tlps_that_nobody_will_send_may_pass():
    async def process(ctx, it, dut):
        ctx.set(dut.lives[0], 5)
        assert not await it.ok(0, P, life=5)
        assert await it.ok(0, P, life=4)
        ctx.set(dut.open, 0)
        assert await it.ok(0, P, life=5)
    accounts(process)


def test_limits_are_signed_differences_and_wrap():
    """Old limits take nothing that was not granted, and what they take comes back."""
    async def process(ctx, it, dut):
        await it.begin(0, 10)
        for total in range(600):  # 300 units each: the counters wrap twice
            await it.limits(0, 11, {CPL: (total + 2, 300 * total + 300)})
            assert await it.ok(0, CPL, 300) and not await it.ok(0, CPL, 301)
            await it.spend(0, CPL, 300)
            assert await it.ok(0, CPL, 0) and not await it.ok(0, CPL, 1)
            await it.limits(0, 11, {CPL: (total, 300 * total - 300)})
            assert not await it.ok(0, CPL, 0)
    assert accounts(process) == 0


def test_limits_count_one_after_the_other_while_credits_are_consumed():
    """Those of a frame from the next cycle on, when it is said; none of them if the life ends."""
    async def process(ctx, it, dut):
        await it.begin(0, 0)
        assert await it.limits(0, 1, {P: (99, 99), NP: (9, 9), CPL: (9, 9)}) == 0b001
        for life in range(3):
            await it.begin(1, 7 + life)
            ctx.set(dut.limits.payload, dict(row=1, ack=8 + life, is_reply=1, credits=[
                dict(cls=n, generation=GENERATION[1], header_limit=1, data_limit=4)
                for n in range(3)]))
            ctx.set(dut.limits.valid, 1)
            for n in range(4):
                if n == life:
                    ctx.set(dut.lives[1], life + 1)
                ctx.set(dut.limits.valid, n < 3)
                # A cycle after a limit was read, and when the life ends.
                assert await it.spend(0, P) == (0b010 if 1 <= n <= life or n == life else 0)
            for cls in TlpClass:
                assert not await it.ok(1, cls, life=life + 1)
                assert not it.sure(1, cls, life=life + 1)
        await it.begin(1, 20)
        assert await it.limits(1, 21, {CPL: (2, 9)}) == 0b010
        assert await it.ok(1, CPL, 9, life=3) and not await it.ok(1, NP, life=3)
        assert await it.ok(0, P, 99) and not await it.ok(0, P, 100)
    assert accounts(process) == 0


def test_random_orders_of_limits():
    """Whatever subset of frames comes, late or doubled: never more than was granted."""
    rng = random.Random(seed())

    async def process(ctx, it, dut):
        freed, used, told = [[0, 0] for _ in range(3)], [[0, 0] for _ in range(3)], []
        await it.begin(2, 0)
        sent, sure = [], 0
        for _ in range(1500):
            cls = rng.choice(list(TlpClass))
            n = cls.value
            told.append({c: (freed[c.value][0] + 4, freed[c.value][1] + 60) for c in TlpClass})
            told = told[-6:]
            if rng.random() < 0.5:
                choice = rng.choice(told)
                await it.limits(2, 1, {c: choice[c] for c in rng.sample(list(TlpClass), 2)})
            units = rng.randint(0, 40)
            sure += it.sure(2, cls, units)
            if it.sure(2, cls, units) or await it.ok(2, cls, units):
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
            assert await it.ok(2, cls, 60) and not await it.ok(2, cls, 61)
            for _ in range(4):
                assert await it.ok(2, cls)
                await it.spend(2, cls)
            assert not await it.ok(2, cls)
        assert min(u[0] for u in used) > 100 and sure > 20
    assert accounts(process) == 0


def test_enough_for_any_tlp_is_known_at_once():
    """From the first limit on, and while as much is left behind each TLP; not for a larger one."""
    async def process(ctx, it, dut):
        await it.begin(0, 0)
        assert not it.sure(0, P)
        await it.limits(0, 1, {P: (4, 2 * MOST), NP: (2, 2 * MOST_REQUEST), CPL: (9, MOST - 1)})
        for cls, most in ((P, MOST), (NP, MOST_REQUEST)):
            assert it.sure(0, cls, most) and not it.sure(0, cls, most + 1)
        assert not it.sure(0, CPL) and await it.ok(0, CPL)
        # As much as the largest is left, then a unit less; one header, then none.
        await it.spend(0, P, MOST)
        assert it.sure(0, P, MOST) and not it.sure(1, P)
        await it.spend(0, P, 0)
        await it.ok(0, CPL)
        assert it.sure(0, P, MOST)
        await it.spend(0, P, 1)
        for _ in range(3):
            assert not it.sure(0, P) and await it.ok(0, P, MOST - 1)
        await it.spend(0, NP)
        assert it.sure(0, NP)
        await it.spend(0, NP)
        assert not it.sure(0, NP) and not await it.ok(0, NP)
        # More is known with the next TLP.
        await it.limits(0, 1, {P: (9, 9 * MOST)})
        assert not it.sure(0, P) and await it.ok(0, P, MOST)
        await it.spend(0, P, MOST)
        assert it.sure(0, P, MOST)
        ctx.set(dut.lives[0], 1)
        await ctx.tick()
        assert not it.sure(0, P, life=1) and await it.ok(0, P)
    accounts(process)
