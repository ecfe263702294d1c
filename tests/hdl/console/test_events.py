"""dxpu.console.events: what happened last, and when."""

import random

import pytest

from dxpu.console import EventRing
from tests.support.testbench import access, seed, simulate

KINDS = ["link_up", "link_down", "opened", "lost", "watchdog"]


def ring(*sequence, unit=3):
    """Give events cycle by cycle; returns how many were recorded and merged, and the entries as
    (time, kind), oldest first."""
    dut, result = EventRing(KINDS, unit=unit), {}
    block = dut.block

    async def bench(ctx):
        for events in sequence:
            ctx.set(dut.events, events)
            await ctx.tick()
        ctx.set(dut.events, 0)
        await ctx.tick().repeat(10)
        for name in ("recorded", "merged", "now"):
            result[name] = (await access(ctx, dut.bus, block.address(name)))[0]
        count = result["recorded"]
        result["entries"] = []
        for n in range(max(0, count - 64), count):
            path = f"entry[{n % 64}].event"
            word, error = await access(ctx, dut.bus, block.address(path))
            assert not error
            fields = block.find(path).register.unpack(word)
            result["entries"].append((fields["time"], fields["kind"]))

    simulate(dut, bench)
    return result


def test_events_have_their_times():
    """Two cycles after the event; the unit is three cycles."""
    got = ring(*[0] * 10, 0b00100, *[0] * 20, 0b00010, 0b00001)
    assert got["entries"] == [((10 + 1) // 3, 2), ((31 + 1) // 3, 1), ((32 + 1) // 3, 0)]
    assert (got["recorded"], got["merged"]) == (3, 0)
    assert (33 + 10) // 3 <= got["now"] <= (33 + 10 + 20) // 3


def test_events_of_one_cycle_are_all_recorded():
    got = ring(0, 0b10111, 0, 0)
    assert [kind for _, kind in got["entries"]] == [0, 1, 2, 4] and got["merged"] == 0


def test_an_event_that_waits_is_one_with_the_next_of_its_kind():
    # Kind 4 waits for four others, and comes again meanwhile, twice.
    got = ring(0b11111, 0b10000, 0b10000)
    assert [kind for _, kind in got["entries"]] == [0, 1, 2, 3, 4] and got["merged"] == 2


def test_the_last_are_kept():
    """Random events: each is recorded or merged; the last 64 can be read, their times in order."""
    rng = random.Random(seed())
    sequence = [rng.choice([0, 0, 0, 1 << rng.randrange(5), rng.getrandbits(5)])
                for _ in range(300)]
    got = ring(*sequence)
    assert got["recorded"] + got["merged"] == sum(e.bit_count() for e in sequence)
    assert got["recorded"] > 64 and got["merged"] > 0 and len(got["entries"]) == 64
    times = [time for time, _ in got["entries"]]
    assert times == sorted(times) and {kind for _, kind in got["entries"]} == set(range(5))


def test_kinds_have_names():
    register = EventRing(KINDS, unit=1).block.find("entry[63].event").register
    kind = next(f for f in register.fields if f.name == "kind")
    assert [v.name.lower() for v in kind.values] == KINDS


@pytest.mark.parametrize("make, message", [
    (lambda: EventRing([], unit=1), "kinds must be 1 to 255 names, not 0"),
    (lambda: EventRing(["a"], unit=0), "unit must be a positive integer, not 0")])
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
