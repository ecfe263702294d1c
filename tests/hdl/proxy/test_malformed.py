"""dxpu.proxy.malformed: what slots and hosts send malformed reaches the port that reports it."""

import random
from itertools import groupby

import pytest

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.proxy.malformed import MalformedCollector, MalformedReporter
from dxpu.proxy.slot_parser import SlotParser
from dxpu_model.tlp import KINDS, Tlp
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

ROWS = 4
HEADER = [0x11, 0x22, 0x33, 0x44]
ERROR = ("ERROR", ErrorCode.MALFORMED)


async def pulse(ctx, dut, row, life=0, header=HEADER, *, prefix="malformed",
                strobe="malformed_strobe"):
    names = [f"{prefix}_{name}" for name in ("row", "life", "header")]
    strobe = getattr(dut, strobe)
    for name, value in zip(names, (row, life, header), strict=True):
        ctx.set(getattr(dut, name), value)
    ctx.set(strobe, 1)
    await ctx.tick()
    ctx.set(strobe, 0)


def reporter():
    dut, reported = MalformedReporter(rows=ROWS), []

    async def watch(ctx):
        ctx.set(dut.open, 0b1111)
        ctx.set(dut.generations, [70 + n for n in range(ROWS)])
        ctx.set(dut.o.ready, 1)
        async for *_, taken, p in ctx.tick().sample(dut.o.valid & dut.o.ready, dut.o.payload):
            if taken:
                reported.append((EventCode(p.code).name, p.argument, p.row, p.generation))
    return dut, reported, [watch, check_stream(dut.o, "o")]


def report(row, *header):
    return [(*event, row, 70 + row) for event in (*(("HEADER", w) for w in header), ERROR)]


def test_a_box_tells_the_header_and_then_the_error():
    dut, reported, background = reporter()

    async def main(ctx):
        await ctx.tick()
        await pulse(ctx, dut, 2)
        await ctx.tick().repeat(20)
        assert reported == report(2, *HEADER)

    simulate(dut, main, background=background)


def test_a_slot_that_sends_nothing_else_is_told_in_turn_with_others():
    """The first report with its header; then, after a pause each, one a slot for all that came."""
    dut, reported, background = reporter()
    when = []

    async def main(ctx):
        await ctx.tick()
        await pulse(ctx, dut, 1)
        for n in range(4 * dut.PAUSE):
            # Slot 1 all the time; two others once, while the first report is on its way.
            await pulse(ctx, dut, {2: 3, 3: 0}.get(n, 1), header=[9] * 4)
            when.append(len(reported))
        assert reported[:8] == [*report(1, *HEADER), *report(3), *report(0), *report(1)]
        assert when[dut.PAUSE - 10] == 5 and when[2 * dut.PAUSE - 10] == 6
        # A report a pause, however much comes.
        assert len(reported) <= 9

    simulate(dut, main, background=background, deadline=20_000)


def test_what_is_of_another_life_or_of_a_closed_slot_is_not_told():
    dut, reported, background = reporter()

    async def main(ctx):
        await ctx.tick()
        ctx.set(dut.lives[1], 3)
        await pulse(ctx, dut, 1, life=2)
        ctx.set(dut.open, 0b1101)
        await pulse(ctx, dut, 1, life=3)
        # It closes while it waits for its turn.
        await pulse(ctx, dut, 0)
        await pulse(ctx, dut, 2)
        ctx.set(dut.open, 0b1001)
        await ctx.tick()
        ctx.set(dut.open, 0b1111)
        await ctx.tick().repeat(dut.PAUSE + 50)
        assert reported == report(0, *HEADER)

    simulate(dut, main, background=background, deadline=10_000)


def test_other_events_pass_between():
    """In order, none lost or doubled, whoever is slow."""
    dut, reported, background = reporter()
    rng = random.Random(seed())
    dut.PAUSE = 16
    ended = []
    sent = [dict(row=n % ROWS, code=EventCode.RESET_DONE, generation=n, argument=n)
            for n in range(200)]

    async def main(ctx):
        for event in sent:
            ctx.set(dut.i.payload, event)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            await ctx.tick().repeat(rng.choice([1, 1, 2, 20]))
        ended.append(1)
        await ctx.tick().repeat(200)

    async def others(ctx):
        while not ended:
            ctx.set(dut.o.ready, rng.random() < 0.6)
            await pulse(ctx, dut, rng.randrange(ROWS))
            await ctx.tick().repeat(rng.choice([1, 5, 40]))
        ctx.set(dut.o.ready, 1)

    simulate(dut, main, background=[*background, others], deadline=20_000)
    assert [t[1] for t in reported if t[0] == "RESET_DONE"] == list(range(200))
    mine = [t for t in reported if t[0] != "RESET_DONE"]
    assert len(mine) > 20
    for row, group in groupby(mine, key=lambda t: t[2:]):
        events = [t[:2] for t in group]
        while events:
            if events[0][0] == "HEADER":
                assert events[:4] == [("HEADER", w) for w in HEADER]
                del events[:4]
            assert events.pop(0) == ERROR, row


class Collector:
    """A collector of ROWS ports, what it found, and the events that passed."""

    def __init__(self):
        self.dut, self.found, self.passed = MalformedCollector(rows=ROWS), [], []
        self.background = [self._watch, check_stream(self.dut.malformed, "found")]

    async def _watch(self, ctx):
        dut = self.dut
        for name, value in (("open", 15), ("link_active", 15)):
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.event_generation, 7)
        ctx.set(dut.malformed.ready, 1)
        ctx.set(dut.o.ready, 1)
        async for *_, found, p, passed, event in ctx.tick().sample(
                dut.malformed.valid & dut.malformed.ready, dut.malformed.p, dut.o.valid,
                dut.o.payload):
            if found:
                self.found.append((p.function, list(p.header)))
            if passed:
                self.passed.append((event.code, event.row))

    async def event(self, ctx, row, code, argument, generation=7):
        ctx.set(self.dut.i.payload, dict(row=row, code=code, generation=generation,
                                         argument=argument))
        ctx.set(self.dut.i.valid, 1)
        await ctx.tick().until(self.dut.i.ready)
        ctx.set(self.dut.i.valid, 0)

    async def report(self, ctx, row, header=(), **options):
        for word in header:
            await self.event(ctx, row, EventCode.HEADER, word, **options)
        await self.event(ctx, row, EventCode.ERROR, ErrorCode.MALFORMED, **options)

    def simulate(self, main):
        async def settled(ctx):
            await ctx.tick()
            await main(ctx)
        simulate(self.dut, settled, background=self.background)


def test_reports_of_boxes_are_put_together_row_by_row():
    it = Collector()

    async def main(ctx):
        for n in range(4):  # of two boxes at the same time
            await it.event(ctx, 1, EventCode.HEADER, 0x10 + n)
            await it.event(ctx, 3, EventCode.HEADER, 0x30 + n)
        await it.report(ctx, 3)
        await it.report(ctx, 1)
        await ctx.tick().repeat(30)
        assert sorted(it.found) == [(2, [0x10, 0x11, 0x12, 0x13]), (4, [0x30, 0x31, 0x32, 0x33])]
        await it.report(ctx, 0)               # without, and with too little
        await it.report(ctx, 2, HEADER[:3])
        await ctx.tick().repeat(30)
        assert sorted(it.found[2:]) == [(1, [0] * 4), (3, [0] * 4)]
        await it.report(ctx, 2, HEADER)       # nothing of the one before is left
        await ctx.tick().repeat(30)
        assert it.found[4:] == [(3, HEADER)] and not it.passed

    it.simulate(main)


def test_what_does_not_fit_passes_as_any_event():
    it = Collector()

    async def main(ctx):
        await it.event(ctx, 1, EventCode.LINK_DOWN, 0)
        await it.report(ctx, 1, HEADER, generation=6)
        ctx.set(it.dut.open, 0b1011)
        await it.report(ctx, 2)
        await it.event(ctx, 1, EventCode.ERROR, ErrorCode.OVERFLOW)
        await ctx.tick().repeat(30)
        assert [row for _, row in it.passed] == [1] * 6 + [2, 1] and not it.found

    it.simulate(main)


def test_what_is_found_here_and_at_the_host():
    it = Collector()

    async def main(ctx):
        ctx.set(it.dut.lives[1], 5)
        ctx.set(it.dut.malformed.ready, 0)
        found = {"prefix": "slot", "strobe": "slot_malformed"}
        ctx.set(it.dut.upstream_malformed, 1)
        ctx.set(it.dut.upstream_header, [1] * 4)
        await pulse(ctx, it.dut, 0, header=[2] * 4, **found)   # both at once
        ctx.set(it.dut.upstream_malformed, 0)
        await pulse(ctx, it.dut, 1, life=4, **found)           # of the life before
        await pulse(ctx, it.dut, 1, life=5, **found)
        await pulse(ctx, it.dut, 1, life=5, **found)           # told once
        await pulse(ctx, it.dut, 3, **found)
        ctx.set(it.dut.link_active, 0b0111)                    # its link goes
        await ctx.tick().repeat(3)
        ctx.set(it.dut.link_active, 0b1111)
        ctx.set(it.dut.malformed.ready, 1)
        await ctx.tick().repeat(60)
        assert it.found[0] == (0, [1] * 4)
        assert sorted(it.found[1:]) == [(1, [0] * 4), (2, [0] * 4)]
        await pulse(ctx, it.dut, 3, **found)
        await ctx.tick().repeat(10)
        assert it.found[3:] == [(4, HEADER)]

    it.simulate(main)


def test_what_contains_a_port_is_told():
    """Though its link goes before; and it is known at once what is found here."""
    it = Collector()

    async def main(ctx):
        found = {"prefix": "slot", "strobe": "slot_malformed"}
        ctx.set(it.dut.malformed.ready, 0)
        await pulse(ctx, it.dut, 0, **found)
        for name, value in (("slot_row", 2), ("slot_malformed", 1)):
            ctx.set(getattr(it.dut, name), value)
        assert ctx.get(it.dut.malformed_rows) == 4
        await ctx.tick()
        ctx.set(it.dut.slot_malformed, 0)
        assert ctx.get(it.dut.malformed_rows) == 0
        ctx.set(it.dut.contained, 4)
        await ctx.tick()
        ctx.set(it.dut.link_active, 0b1011)
        await ctx.tick().repeat(3)
        ctx.set(it.dut.malformed.ready, 1)
        await ctx.tick().repeat(20)
        assert it.found == [(1, HEADER), (3, [0] * 4)]

    it.simulate(main)


def test_nothing_is_forgotten_in_a_storm():
    """Reports of all sides at any time: in the end each port that had one was told of one since."""
    it = Collector()
    rng = random.Random(seed())
    due = set()

    async def main(ctx):
        dut = it.dut
        for _ in range(600):
            side, row = rng.randrange(3), rng.randrange(ROWS)
            word = rng.getrandbits(32)
            before = len(it.found)
            if side == 0:
                ctx.set(dut.upstream_header, [word] * 4)
                ctx.set(dut.upstream_malformed, 1)
                await ctx.tick()
                ctx.set(dut.upstream_malformed, 0)
                due.add(0)
            elif side == 1:
                await pulse(ctx, dut, row, header=[word] * 4, prefix="slot",
                            strobe="slot_malformed")
                due.add(row + 1)
            else:
                await it.report(ctx, row, [word] * 4)
                due.add(row + 1)
            ctx.set(dut.malformed.ready, rng.random() < 0.5)
            await ctx.tick().repeat(rng.choice([1, 1, 2, 5, 40]))
            for function, header in it.found[before:]:
                assert header == [header[0]] * 4, function  # never of two TLPs
        ctx.set(dut.malformed.ready, 1)
        last = len(it.found)
        for row in range(ROWS):
            await it.report(ctx, row)
        await ctx.tick().repeat(100)
        assert {function for function, _ in it.found[last:]} >= set(range(1, ROWS + 1))
        assert {function for function, _ in it.found} == due

    it.simulate(main)


@pytest.mark.parametrize("width", [pytest.param(32, marks=pytest.mark.long), 512])
def test_rows_have_limits_of_their_own(width):
    """TLPs of several rows through one parser: what is too much for its row, and whose it was."""
    rng = random.Random(seed())
    dut = SlotParser(width, rows=4)
    limits, packets, bad = [0, 1, 2, 5], [], []
    for n in range(120):
        row, length = rng.randrange(4), rng.choice([1, 32, 33, 64, 65, 128, 129])
        raw = Tlp(*KINDS["CplD"], length=length, tag=n, byte_count=4,
                  payload=bytes(4 * length)).pack()
        wrong = length > 32 << limits[row]
        packets.append(Packet(raw, meta=dict(row=row, life=n % 4)))
        if wrong:
            bad.append((row, n % 4, raw[:12]))
    out, discarded, reported = [], [], []

    async def watch(ctx):
        ctx.set(dut.max_payloads, limits)
        async for *_, strobe, row, life, header in ctx.tick().sample(
                dut.stat_malformed, dut.malformed_row, dut.malformed_life, dut.malformed_header):
            if strobe:
                reported.append((row, life, b"".join(w.to_bytes(4, "little") for w in header[:3])))

    async def settle(ctx):
        while len(out) + len(discarded) < len(packets):
            await ctx.tick()
        await ctx.tick().repeat(10)

    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=0.9), settle, background=[
        watch, collect_packets(dut.o, len(packets), out, rng=rng, density=0.7,
                               discarded=discarded)], deadline=100_000)
    assert reported == bad and len(bad) > 10
    assert len(discarded) == len(bad) and len(out) == len(packets) - len(bad)
