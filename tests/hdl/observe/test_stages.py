"""dxpu.observe.sights and .stages: names of TLPs, and how long they take, against models."""

import random

import pytest
from amaranth import *

from dxpu.observe.sights import HeadTap
from dxpu.observe.stages import ReceiveTimer, SendTimer
from tests.support.mutate import mutant
from tests.support.testbench import seed, simulate

AGE = 1 << 15
#: Cycles from the first beat of a TLP to its name.
LATE = 2


def random_header(rng):
    """First dwords of a TLP as bytes, and its name if it has one; from the encodings of PCIe Base
    5.0, table 2-3, not from the gateware."""
    kinds = {  # name: (Fmt, Type, has a name)
        "MRd": (0b000, 0b00000, True), "MRd64": (0b001, 0b00000, True),
        "MWr": (0b010, 0b00000, False), "MWr64": (0b011, 0b00000, False),
        "IORd": (0b000, 0b00010, True), "IOWr": (0b010, 0b00010, True),
        "CfgRd0": (0b000, 0b00100, False), "CfgWr1": (0b010, 0b00101, False),
        "Msg": (0b001, 0b10100, False), "MsgD": (0b011, 0b10010, False),
        "Cpl": (0b000, 0b01010, True), "CplD": (0b010, 0b01010, True),
        "CplLk": (0b000, 0b01011, True), "FetchAdd": (0b010, 0b01100, True),
        "CAS": (0b011, 0b01110, True), "prefix": (0b100, 0b10000, False)}
    what = rng.choice(list(kinds))
    fmt, kind, named = kinds[what]
    words = [rng.getrandbits(32) & ~0xFF | fmt << 5 | kind, rng.getrandbits(32),
             rng.getrandbits(32), *(rng.getrandbits(32) for _ in range(rng.randrange(6)))]
    name = words[1] | words[2] << 32 | (kind >> 1 == 0b0101) << 64
    return words, (name if named else None)


@pytest.mark.parametrize("width", [32, 64, 128, 512])
def test_names_of_tlps(width):
    """With gaps within TLPs: each TLP is told once, with the time of its first beat."""
    dut, rng, given, seen = HeadTap(width), random.Random(seed()), [], []
    lanes = width // 32

    async def process(ctx):
        cycle = 0

        async def tick():
            nonlocal cycle
            await ctx.tick()
            cycle += 1
            ctx.set(dut.now, cycle)

        for _ in range(150):
            words, name = random_header(rng)
            for n in range(0, len(words), lanes):
                while rng.random() < 0.3:
                    ctx.set(dut.take, 0)
                    ctx.set(dut.data, rng.getrandbits(width))
                    await tick()
                if n == 0:
                    given.append((name, cycle + 1))
                ctx.set(dut.take, 1)
                ctx.set(dut.first, n == 0)
                ctx.set(dut.data, sum(word << 32 * k for k, word in enumerate(
                    words[n:n + lanes])))
                await tick()
        ctx.set(dut.take, 0)
        await tick()
        await tick()

    async def watch(ctx):
        async for _, _, sight in ctx.tick().sample(dut.sight):
            if sight.strobe:
                seen.append((sight.name if sight.named else None, sight.time))

    simulate(dut, process, background=[watch])
    assert seen == given


def sight(ctx, port, name=None, time=0, *, named=True):
    """A TLP passes, or none."""
    ctx.set(port, {"strobe": name is not None, "named": named, "name": name or 0,
                   "time": time & 0xFFFF})


class Timed:
    """A timer at work, with its clock, and what it says."""

    def __init__(self, dut):
        self.dut, self.cycle, self.found, self.given_up = dut, 0, [], 0
        self.pending = {}

    async def tick(self, ctx, **events):
        """A cycle in which TLPs pass ports (names), or frames do what is said."""
        for port in ("entry", "middle", "exit"):
            if hasattr(self.dut, port):
                sight(ctx, getattr(self.dut, port), events.get(port), self.cycle - LATE,
                      named=events.get("named", True))
        for port in ("entry_row", "middle_row"):
            if hasattr(self.dut, port):
                ctx.set(getattr(self.dut, port), events.get("row", 0))
        if hasattr(self.dut, "arrival"):
            for name in ("ends", "takes", "judged"):
                ctx.set(getattr(self.dut.arrival, name), events.get(name, 0))
        ctx.set(self.dut.now, self.cycle & 0xFFFF)
        await ctx.tick()
        self.cycle += 1

    async def watch(self, ctx):
        """Take what the timer says, after some cycles."""
        rng = random.Random(seed())
        ctx.set(self.dut.o.ready, 0)
        async for _, _, valid, ready, passage, gave_up in ctx.tick().sample(
                self.dut.o.valid, self.dut.o.ready, self.dut.o.payload, self.dut.stat_given_up):
            if valid and ready:
                self.found.append((passage.row, passage.time))
            self.given_up += gave_up
            ctx.set(self.dut.o.ready, rng.random() < 0.5)


#: Cycles until a timer that has ended with a TLP surely follows the next one.
REST = 25


def run_send(kind, middle):
    """TLPs with random ways, in any order: each that is followed has the time between its first
    beats."""
    timed, rng = Timed(kind(middle=middle)), random.Random(seed())
    expected = []

    async def process(ctx):
        inside, followed, rest = [], None, 0
        for cycle in range(1500):
            events = {}
            if not rest and len(inside) < 6 and rng.random() < 0.1:
                tlp = {"name": rng.getrandbits(65) | 1, "row": rng.randrange(8), "begin": cycle,
                       "wait": rng.randint(2, 40), "known": not middle}
                inside.append(tlp)
                followed = followed or tlp
                events["entry"] = tlp["name"]
                if not middle:
                    events["row"] = tlp["row"]
            elif inside and rng.random() < 0.2:
                tlp = rng.choice(inside)
                if cycle > tlp["begin"] + tlp["wait"]:
                    if tlp["known"]:
                        events["exit"] = tlp["name"]
                        inside.remove(tlp)
                        if tlp is followed:
                            expected.append((tlp["row"], cycle - tlp["begin"]))
                            followed, rest = None, REST
                    else:
                        tlp["known"], events["middle"], events["row"] = True, *(
                            tlp[key] for key in ("name", "row"))
            rest = max(0, rest - 1)
            await timed.tick(ctx, **events)
        for _ in range(REST):
            await timed.tick(ctx)

    simulate(timed.dut, process, background=[timed.watch], deadline=20_000)
    return timed, expected


@pytest.mark.parametrize("middle", [True, False])
def test_tlps_are_followed_into_frames(middle):
    timed, expected = run_send(SendTimer, middle)
    assert timed.found == expected and len(expected) > 10 and not timed.given_up


@pytest.mark.parametrize("middle", [True, False])
def test_what_never_comes_out_is_given_up(middle):
    timed = Timed(SendTimer(middle=middle))

    async def process(ctx):
        timed.cycle = 60_000  # the clock wraps
        await timed.tick(ctx, entry=5, row=1)
        timed.cycle += AGE - 20  # the clock is ours
        for _ in range(10):
            await timed.tick(ctx)
        assert not timed.given_up
        for _ in range(20):
            await timed.tick(ctx)
        assert timed.given_up == 1
        await timed.tick(ctx, entry=6, row=2)
        await timed.tick(ctx, middle=6, row=2)
        await timed.tick(ctx, exit=5)
        await timed.tick(ctx, exit=6, named=False)
        await timed.tick(ctx, exit=6)
        for _ in range(20):
            await timed.tick(ctx)
        assert timed.found == [(2, 4)]

    simulate(timed.dut, process, background=[timed.watch])


def test_what_has_no_name_is_not_followed():
    timed = Timed(SendTimer(middle=False))

    async def process(ctx):
        await timed.tick(ctx, entry=5, row=1, named=False)
        await timed.tick(ctx, exit=5)
        await timed.tick(ctx, entry=7, row=3)
        await timed.tick(ctx, exit=7)
        for _ in range(20):
            await timed.tick(ctx)
        assert timed.found == [(3, 1)]

    simulate(timed.dut, process, background=[timed.watch])


def run_receive(kind):
    """Frames in a row, good, bad, and without TLPs: a followed one's first TLP has its time."""
    timed, rng = Timed(kind()), random.Random(seed())
    expected, most_ahead = [], 0

    async def process(ctx):
        nonlocal most_ahead
        frames, out, followed, rest, quiet = [], [], None, 0, 0
        for cycle in range(2500):
            events = {}
            if quiet:
                quiet -= 1
            elif frames and cycle > frames[0]["begin"] + 12 and rng.random() < 0.3:
                frame = frames[0]
                if frame["good"] and not frame["took"]:
                    frame["took"], events["takes"] = True, 1
                    frame["head"] = cycle + rng.randint(3, 6)
                    if rng.random() < 0.5:
                        events["judged"] = 1
                        frames.pop(0)
                    out.append(frame)
                else:
                    events["judged"] = 1
                    frames.pop(0)
                    if frame is followed and not frame["good"]:
                        followed, rest = None, REST
            # A frame acts after the TLPs of older ones have come out.
            for frame in sorted(out, key=lambda frame: frame["head"], reverse=True):
                if frame["head"] == cycle:
                    events |= {"entry": frame["name"], "row": frame["row"],
                               "named": frame["named"]}
                    frame["exit"] = cycle + rng.randint(3, 60)
                    if frame is followed and not frame["named"]:
                        followed, rest = None, REST
                elif frame["head"] > cycle:
                    quiet = 2
                elif cycle >= frame["exit"] and "entry" not in events:
                    events |= {"exit": frame["name"], "named": frame["named"]}
                    out.remove(frame)
                    if frame is followed:
                        expected.append((frame["row"], cycle - frame["begin"]))
                        followed, rest = None, REST
                    break
            if not rest and len(frames) < 5 and rng.random() < 0.15:
                frames.append({"begin": cycle, "name": rng.getrandbits(65) | 1,
                               "row": rng.randrange(8), "named": rng.random() < 0.8,
                               "good": rng.random() < 0.7, "head": None, "took": False})
                events["ends"] = 1
                if followed is None:
                    followed, most_ahead = frames[-1], max(most_ahead, len(frames) - 1)
            rest = max(0, rest - 1)
            await timed.tick(ctx, **events)
        for _ in range(REST):
            await timed.tick(ctx)

    simulate(timed.dut, process, background=[timed.watch], deadline=20_000)
    return timed, expected, most_ahead


def test_tlps_are_followed_from_their_frame_on():
    timed, expected, most_ahead = run_receive(ReceiveTimer)
    # Frames are looked at a cycle later.
    assert [(row, time + 1 + LATE) for row, time in timed.found] == expected
    assert len(expected) > 10 and most_ahead > 1 and not timed.given_up


@pytest.mark.parametrize("old, new", [
    ("sight.named & (sight.name == name)", "sight.named"),
    ("self.exit.time - start", "self.now - start"),
    ("passage.row.eq(self.middle_row)", "passage.row.eq(0)"),
    ("with m.If(self.entry.strobe & self.entry.named):", "with m.If(0):"),
], ids=["any name", "now", "no row", "never"])
def test_mutants_of_the_way_out_are_found(old, new):
    timed, expected = run_send(mutant(SendTimer, (old, new)), True)
    assert timed.found != expected


@pytest.mark.parametrize("old, new", [
    ("under_way - frame.judged)", "0)"),
    ("under_way + frame.ends - frame.judged", "under_way + frame.ends"),
    ("ahead.eq(ahead - frame.judged)", "ahead.eq(ahead)"),
    ("with m.If((ahead == 0) & frame.takes):", "with m.If(frame.takes):"),
    ("passage.row.eq(self.entry_row)", "passage.row.eq(0)"),
    ("m.d.sync += [start.eq(self.now), ", "m.d.sync += ["),
], ids=["none ahead", "never judged", "waits for ever", "any frame", "no row", "no start"])
def test_mutants_of_the_way_in_are_found(old, new):
    timed, expected, _ = run_receive(mutant(ReceiveTimer, (old, new)))
    assert [(row, time + 1 + LATE) for row, time in timed.found] != expected
