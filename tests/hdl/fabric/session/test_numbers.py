"""dxpu.fabric.session.numbers against two plain lists."""

import random

import pytest
from amaranth import *

from dxpu.fabric.session.numbers import ReceivedNumbers
from tests.support.mutate import mutant
from tests.support.testbench import seed, simulate


def works(design, sessions):
    """Whether random numbers are fetched as they were written; with resets, before which the memory
    is full of others."""
    rng = random.Random(seed())
    m, reset = Module(), Signal()
    dut = design(sessions=sessions)
    m.submodules.dut = ResetInserter(reset)(dut)
    right = []

    async def process(ctx):
        for _ in range(3):
            zeroing = 0
            while ctx.get(dut.busy):
                zeroing += 1
                await ctx.tick()
            right.append(zeroing == 2 << (sessions - 1).bit_length())
            model, expected = [[0] * sessions for _ in range(2)], None
            just = None   # the session whose newest number was put in the cycle before
            for _ in range(30 * sessions + 60):
                session, which = rng.randrange(sessions), rng.randrange(2)
                puts = [0, 0] if just is not None else [rng.getrandbits(1) for _ in range(2)]
                clear = just is None and not any(puts) and rng.random() < 0.1
                target = rng.randrange(sessions)
                values, firsts = ([rng.getrandbits(24) for _ in range(2)] for _ in range(2))
                # Nobody fetches what is written.
                writes = {(target, 0)} if puts[0] or clear else set()
                writes |= {(just, 1)} - {(None, 1)}
                fetch = not ctx.get(dut.busy) and (session, which) not in writes
                for name, value in (
                        ("fetch", fetch), ("fetch_session", session), ("fetch_newest", which),
                        ("put_expected", puts[0]), ("put_newest", puts[1]), ("put_session", target),
                        ("expected", values[0]), ("newest", values[1]), ("clear", clear),
                        ("first_expected", firsts[0]), ("first_newest", firsts[1]),
                        ("clear_session", target)):
                    ctx.set(getattr(dut, name), value)
                if fetch:
                    expected = model[which][session]
                for n in range(2):
                    if puts[n] or clear:
                        model[n][target] = firsts[n] if clear else values[n]
                just = target if puts[1] or clear else None
                await ctx.tick()
                right.append(ctx.get(dut.writes_newest) == (just is not None))
                right.append(bool(ctx.get(dut.busy)) == clear)
                if fetch:
                    right.append(ctx.get(dut.fetched_number) == expected)
            for name in ("fetch", "put_expected", "put_newest", "clear"):
                ctx.set(getattr(dut, name), 0)
            ctx.set(reset, 1)
            await ctx.tick().repeat(rng.randint(1, 3))
            ctx.set(reset, 0)

    simulate(m, process)
    return all(right)


@pytest.mark.parametrize("sessions", [1, 3, 64])
def test_numbers_are_fetched_as_they_were_written_and_zero_after_a_reset(sessions):
    assert works(ReceivedNumbers, sessions)


@pytest.mark.parametrize("change", [
    ("newest.eq(Mux(self.clear, self.first_newest, self.newest))", "newest.eq(self.newest)"),
    ("Mux(self.clear, self.first_expected, self.expected)",
     "Mux(self.clear, self.first_newest, self.expected)"),
    ("write.addr.eq(Cat(C(1, 1), session))", "write.addr.eq(Cat(C(1, 1), where))"),
    ("Cat(self.fetch_newest, self.fetch_session)", "Cat(C(0, 1), self.fetch_session)"),
    ("zeroed.eq(zero.all())", "zeroed.eq(1)"),
    ("| cleared", ""),
], ids=str)
def test_mutants_are_found(change):
    with pytest.raises(AssertionError):
        assert works(mutant(ReceivedNumbers, change), 3)
