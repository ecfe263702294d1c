"""What a node tells by itself, beside a list of what happened."""

import random
from collections import Counter

import pytest

from dxpu.management.events import NodeEvents
from dxpu.management.format import Subject
from tests.support.testbench import count_pulses, seed, simulate

PATHS, ROWS = 2, 4
TURN = PATHS + ROWS + 1


class Bench:
    """Sets states, and collects events when told to."""

    def __init__(self, depth=512):
        self.rng, self.dut = random.Random(seed()), NodeEvents(paths=PATHS, rows=ROWS, depth=depth)
        self.got, self.counts, self.takes = [], {}, True

    def run(self, process):
        dut = self.dut

        async def collect(ctx):
            while True:
                ctx.set(dut.o.ready, self.takes and self.rng.random() < 0.5)
                ready = ctx.get(dut.o.ready)
                _, _, valid, code, where, zero, argument = await ctx.tick().sample(
                    dut.o.valid, dut.o.payload.code, dut.o.payload.where, dut.o.payload.zero,
                    dut.o.payload.argument)
                if valid and ready:
                    assert zero == 0
                    swapped = int.from_bytes(argument.to_bytes(4, "little"), "big")
                    self.got.append((Subject(code), where, swapped))

        simulate(dut, process, background=[collect, count_pulses(dut, self.counts, "untold")],
                 deadline=200_000)

    def state(self, ctx, subject, where, value):
        """A path, a slot or the noise gets a state."""
        if subject == Subject.PATH:
            ctx.set(self.dut.links[where], value)
        elif subject == Subject.SLOT:
            bits = [value >> n & 1 for n in range(4)]
            ctx.set(self.dut.slots[where],
                    dict(zip(("bound", "present", "open", "marked"), bits, strict=True)))
        else:
            ctx.set(self.dut.failed, value)

    async def session(self, ctx, number, opened, ended):
        """A session tells of itself."""
        ctx.set(self.dut.news, {"strobe": 1, "opened": opened, "ended": ended, "session": number})
        await ctx.tick()
        ctx.set(self.dut.news.strobe, 0)


SOURCES = [*((Subject.PATH, n, 1) for n in range(PATHS)), *((Subject.SLOT, n, 15)
           for n in range(ROWS)), (Subject.ERROR, 0, 1)]


def test_all_that_changes_is_told_once():
    """In order for each source, with its state, when there is time between two changes."""
    bench, said = Bench(), []

    async def process(ctx):
        states = Counter()
        for _ in range(300):
            if bench.rng.random() < 0.3:
                opened, ended = bench.rng.choice(((0, 1), (1, 0), (1, 1)))
                number = bench.rng.randrange(256)
                said.append((Subject.SESSION, 0, number | opened << 31 | ended << 30))
                await bench.session(ctx, number, opened, ended)
            else:
                subject, where, most = bench.rng.choice(SOURCES)
                value = bench.rng.choice([n for n in range(most + 1)
                                          if n != states[subject, where]])
                states[subject, where] = value
                said.append((subject, where, value))
                bench.state(ctx, subject, where, value)
            await ctx.tick().repeat(2 * TURN)
        await ctx.tick().repeat(2000)

    bench.run(process)
    assert bench.got == said and not bench.counts.get("untold")


def test_all_at_once():
    """What changes in one cycle is told one after the other; nothing is left out."""
    bench, said = Bench(), []

    async def process(ctx):
        for subject, where, most in SOURCES:
            bench.state(ctx, subject, where, most)
            said.append((subject, where, most))
        for number in range(40):  # cycle by cycle
            said.append((Subject.SESSION, 0, number | 1 << 31))
            await bench.session(ctx, number, 1, 0)
        await ctx.tick().repeat(300)

    bench.run(process)
    assert sorted(bench.got) == sorted(said) and not bench.counts.get("untold")


@pytest.mark.parametrize("many", [20, 400])
def test_what_finds_no_room_is_counted(many):
    """Nobody takes events: those that find no room are lost, and their number is told; each state
    is told at last."""
    bench = Bench(depth=16)
    bench.takes = False

    async def process(ctx):
        states = Counter()
        for n in range(many):
            await bench.session(ctx, n & 0xFF, n & 1, ~n & 1)
        await ctx.tick().repeat(2 * TURN)
        for _ in range(many):
            subject, where, most = bench.rng.choice(SOURCES)
            states[subject, where] = (states[subject, where] + 1) % (most + 1)
            bench.state(ctx, subject, where, states[subject, where])
            await ctx.tick().repeat(2 * TURN)
        bench.takes = True
        await ctx.tick().repeat(2000)
        last = {(subject, where): value for subject, where, value in bench.got}
        for (subject, where), value in states.items():
            assert last.get((subject, where), 0) == value

    bench.run(process)
    lost = sum(value for subject, _, value in bench.got if subject == Subject.LOST)
    told = sum(subject != Subject.LOST for subject, *_ in bench.got)
    assert lost == bench.counts["untold"] and told + lost == 2 * many
    assert lost > 0


def test_the_number_of_lost_events_ends_at_65535():
    bench = Bench(depth=3)
    bench.takes = False

    async def process(ctx):
        ctx.set(bench.dut.news, {"strobe": 1, "opened": 1, "ended": 0, "session": 1})
        await ctx.tick().repeat(65_600)
        ctx.set(bench.dut.news.strobe, 0)
        bench.takes = True
        await ctx.tick().repeat(100)

    bench.run(process)
    assert (Subject.LOST, 0, 0xFFFF) in bench.got


def test_cycles():
    """An event is offered three cycles after a session has told of itself."""
    bench = Bench()

    async def process(ctx):
        await ctx.tick().repeat(2 * TURN)
        await bench.session(ctx, 1, 1, 0)
        for _ in range(2):
            assert not ctx.get(bench.dut.o.valid)
            await ctx.tick()
        assert ctx.get(bench.dut.o.valid)

    bench.run(process)
