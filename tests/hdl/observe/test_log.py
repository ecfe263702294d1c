"""dxpu.observe.log: the last events, with their times, against the golden model."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.csr import Block, RegisterFile, RegisterPort, connect_ports
from dxpu.observe.log import DEPTH, EventKind, EventLog, Pulses, event_rows, log_registers
from dxpu_model.event_log import DEPTH as MODEL_DEPTH
from dxpu_model.event_log import Event, EventLogModel, still_there
from tests.support.mutate import mutant
from tests.support.testbench import access, seed, simulate

WORDS = 3
PULSES = (Pulses(EventKind.COUNTED, (4, 9, 17), quiet=True), Pulses(EventKind.LINK_UP, (0, 1)))
EACH = [(group.kind.value, argument, group.quiet) for group in PULSES
        for argument in group.arguments]
QUIET = 256


class Logged(wiring.Component):
    """A log behind a register port."""

    def __init__(self, kind=EventLog, **options):
        self.block = Block("observe", (*log_registers(0), event_rows(0x800)), size=0x2000)
        self.log = kind(words=WORDS, pulses=PULSES, quiet=QUIET, **options)
        self.file = RegisterFile(self.block)
        super().__init__({"bus": In(RegisterPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.log, m.submodules.file = log, file = self.log, self.file
        connect_ports(m, wiring.flipped(self.bus), file.bus)
        m.d.comb += [
            log.address.eq(file.mem_address - 0x800), log.request.eq(file.mem_request),
            file.mem_read_data.eq(log.read_data), file.mem_done.eq(log.done),
            log.frozen.eq(file.log.frozen), file.log.lost.eq(log.losses),
            file.recorded.count.eq(log.recorded),
            file.now_low.time.eq(log.now), file.now_high.time.eq(log.now[32:]),
        ]
        return m


async def word(ctx, dut, path, value=None):
    """A register, after it was written if there is a value."""
    got, error = await access(ctx, dut.bus, dut.block.address(path), value)
    assert not error
    return got


async def entries(ctx, dut):
    """The events that are there, oldest first."""
    before = await word(ctx, dut, "recorded")
    words = {n: (await word(ctx, dut, f"event[{n % DEPTH}].time"),
                 await word(ctx, dut, f"event[{n % DEPTH}].what"))
             for n in range(max(0, before - DEPTH), before)}
    after = await word(ctx, dut, "recorded")
    return [Event.of(n, *words[n]) for n in still_there(before, after)]


def give(ctx, dut, words, pulses):
    """Events of this cycle."""
    for n in range(WORDS):
        ctx.set(dut.log.words[n].strobe, 0)
    for source, kind, argument in words:
        ctx.set(dut.log.words[source], {"strobe": 1, "kind": kind, "argument": argument})
    ctx.set(dut.log.pulses, sum(1 << n for n in pulses))


def random_events(rng, rate):
    """Words and pulses of a cycle."""
    kinds = [EventKind.WRITTEN.value, EventKind.BOUND.value]
    return ([(n, rng.choice(kinds), rng.getrandbits(16)) for n in range(WORDS)
             if rng.random() < rate],
            [n for n in range(len(EACH)) if rng.random() < rate])


def run_random(dut, rate, cycles=900):
    """Random events: what can be read afterwards is what the model says, to the unit of time."""
    rng = random.Random(seed())
    model = EventLogModel(WORDS, EACH, period=QUIET)

    async def process(ctx):
        for cycle in range(cycles):
            words, pulses = random_events(rng, rate) if cycle < cycles - 60 else ([], [])
            give(ctx, dut, words, pulses)
            model.step(words, pulses)
            await ctx.tick()
        assert await word(ctx, dut, "recorded") == len(model.events) > 30
        state = await word(ctx, dut, "log")
        assert state >> 16 == model.lost
        found = await entries(ctx, dut)
        assert found == model.events[-DEPTH + 1:]

    simulate(dut, process, deadline=20_000)
    return model


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.6])
def test_the_log_is_that_of_the_model(rate):
    assert DEPTH == MODEL_DEPTH
    model = run_random(Logged(), rate, cycles=6000 if rate == 0.01 else 1500)
    assert (model.lost > 20) == (rate > 0.02)
    quiet = [event for event in model.events if event.kind == EventKind.COUNTED]
    assert len(quiet) <= 3 * (6000 // QUIET + 1)


def test_what_was_overwritten_is_known():
    """A reader that is slower than the events: each event it keeps is one that happened."""
    dut, given = Logged(), []

    async def source(ctx):
        rng = random.Random(seed())
        for _ in range(700):
            given.append(rng.getrandbits(16))
            give(ctx, dut, [(0, EventKind.WRITTEN.value, given[-1])], [])
            await ctx.tick()
            give(ctx, dut, [], [])
            await ctx.tick().repeat(11)

    async def process(ctx):
        await ctx.tick().repeat(12 * 400)
        found = await entries(ctx, dut)
        assert 0 < len(found) < DEPTH
        assert [event.argument for event in found] == [given[event.number] for event in found]

    simulate(dut, process, background=[source], deadline=20_000)


def test_a_frozen_log_stays_as_it_is():
    dut = Logged()

    async def process(ctx):
        give(ctx, dut, [(1, EventKind.BOUND.value, 7)], [])
        await ctx.tick()
        give(ctx, dut, [], [])
        await ctx.tick().repeat(20)
        await word(ctx, dut, "log", 1)
        for _ in range(3):
            give(ctx, dut, [(1, EventKind.RELEASED.value, 7)], [0, 3])
            await ctx.tick()
        give(ctx, dut, [], [])
        await ctx.tick().repeat(20)
        assert [event.argument for event in await entries(ctx, dut)] == [7]
        assert await word(ctx, dut, "log") == 3 << 16 | 1
        await word(ctx, dut, "log", 0)
        give(ctx, dut, [(2, EventKind.RELEASED.value, 8)], [])
        await ctx.tick()
        give(ctx, dut, [], [])
        await ctx.tick().repeat(20)
        assert [event.argument for event in await entries(ctx, dut)] == [7, 8]

    simulate(dut, process)


def test_time_goes_on_in_its_upper_bits():
    dut = Logged()

    async def process(ctx):
        begin = (await word(ctx, dut, "now_low")), (await word(ctx, dut, "now_high"))
        await ctx.tick().repeat(1600)
        now = await word(ctx, dut, "now_low")
        assert begin[1] == 0 and 100 <= now - begin[0] <= 102

    simulate(dut, process)


def test_a_reader_knows_what_it_may_keep():
    """The entry behind the newest one may be half written."""
    assert still_there(3, 3) == range(3) and still_there(0, 0) == range(0)
    assert still_there(300, 300) == range(45, 300)
    assert still_there(300, 310) == range(55, 300)
    assert len(still_there(300, 600)) == 0
    assert Event.of(5, 0x12345678, 0xBEEF_07_9A) == Event(5, 0x9A_1234_5678, 7, 0xBEEF)


@pytest.mark.parametrize("old, new", [
    ("free = ~waiting | noted", "free = ~noted"),
    ("waiting & ~noted | kept", "waiting | kept"),
    ("resting | noted) & quiet", "resting) & quiet"),
    ("Mux(anew, 0, resting", "Mux(anew, resting, resting"),
    ("kept.eq(came & free & ~resting", "kept.eq(came & free"),
    ("lost.eq(came & ~kept & ~quiet)", "lost.eq(came & ~kept)"),
    ("lowest_bit(waiting)), time", "waiting), time"),
    ("write.addr[0].eq(1)", "write.addr[0].eq(0)"),
    ("m.d.comb += [kind.eq(of.value), argument.eq(which)]", "m.d.comb += kind.eq(of.value)"),
], ids=["kept twice", "stays", "never rests", "rests for ever", "rest ignored", "quiet is lost",
        "not the first", "one word", "no argument"])
def test_mutants_are_found(old, new):
    with pytest.raises(AssertionError):
        run_random(Logged(mutant(EventLog, (old, new))), 0.2)
