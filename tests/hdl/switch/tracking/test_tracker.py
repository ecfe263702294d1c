"""dxpu.switch.tracking.tracker against the golden tracker: random and hostile traffic, fences,
deadlines."""

import dataclasses
import random

import pytest
from amaranth import *
from amaranth.hdl import ResetInserter
from dxpu.proxy.registers import control_block
from dxpu.switch.tracking.tracker import STAMP, CompletionTracker
from dxpu.switch.tracking.types import DropCause, tracked_completion
from dxpu.tlp.types import CompletionStatus
from dxpu_model.tlp import Tlp, complete
from dxpu_model.tracker import Tracker, split
from tests.support.mutate import mutant
from tests.support.testbench import seed, simulate
from tests.support.tracker_bench import Bench, Slots, Watch, random_request, read


def run(rng, *, count, density=1.0, ready=1.0, slots=None, deadline=1200, requests=None,
        **parameters):
    """Random requests, completions and fences until ``count`` requests have their ends.

    A controller fences what expires, and a slot without reason now and then; each fence ends with
    a new generation of the slot.
    """
    bench = Bench(**parameters)
    watch = Watch(bench, deadline=deadline)
    dut, ports = bench.dut, watch.ports
    generations = [rng.getrandbits(16) for _ in range(ports)]
    todo, done = set(), []

    def source():
        for _ in range(count):
            slot = rng.randrange(ports)
            # Mostly not to fenced slots, as a switch would do.
            while slot in todo and rng.random() < 0.9:
                yield None
            tlp = (requests or random_request)(rng)
            yield slot, generations[slot], rng.random() < 0.05, tlp
        yield from [None] * 4
        while watch.golden.open or watch.answers:
            yield None
        done.append(True)

    async def controller(ctx):
        ctx.set(dut.deadline, deadline)
        async for _, _, strobe, slot, drained in ctx.tick().sample(
                dut.expired.strobe, dut.expired.slot, dut.drained):
            if strobe:
                todo.add(slot)
            if rng.random() < 0.001:
                todo.add(rng.randrange(ports))
            fence = ctx.get(dut.fence)
            for n in list(todo):
                if not fence >> n & 1:
                    fence |= 1 << n
                elif drained >> n & 1 and rng.random() < 0.05:
                    fence &= ~(1 << n)
                    todo.discard(n)
                    generations[n] = (generations[n] + 1) % 65536
            ctx.set(dut.fence, fence)

    made = (slots or Slots)(rng, watch, generations)
    drive = watch.drive_requests(source(), rng=rng, density=density)
    simulate(bench, drive, background=[
        *watch.background(), controller,
        watch.drive_completions(made, rng=rng, density=density),
        watch.take(bench.verdict, rng=rng, density=ready),
        watch.take(bench.answer, rng=rng, density=ready)], deadline=400 * count + 20_000)
    assert done
    # The completions that hostile slots still send are judged, too.
    watch.verdicts.clear()
    return watch


@pytest.mark.parametrize("parameters", [
    dict(ports=3, entries=16, ways=2, granule=32),
    dict(ports=1, entries=2, ways=1, granule=8),
    dict(ports=32, entries=64, ways=4, granule=64, status=CompletionStatus.CA),
], ids=["16", "2", "64"])
@pytest.mark.parametrize("density, ready", [(1, 1), (0.3, 0.3)])
def test_random_and_hostile_traffic(parameters, density, ready):
    """Every verdict, every answer to the byte, every counter; each request ends exactly once."""
    rng = random.Random(seed())
    watch = run(rng, count=60, density=density, ready=ready, **parameters)
    watch.finish()
    assert watch.accepted == 60 and watch.ended and watch.answered


def playing(parameters, script, *, deadline=None):
    """Run ``script(ctx, watch)`` on a watched tracker that others take from at once."""
    bench = Bench(**parameters)
    watch = Watch(bench, deadline=deadline)

    async def process(ctx):
        ctx.set(bench.dut.deadline, (1 << len(bench.dut.deadline)) // 2)
        await ctx.tick().repeat(bench.dut._sets + 1)  # memories are clear
        await script(ctx, watch)
        await ctx.tick().repeat(40)

    simulate(bench, process, background=[
        *watch.background(), watch.drive_requests(watch.later()),
        watch.take(bench.verdict), watch.take(bench.answer)])
    return watch


SMALL = dict(ports=2, entries=16, ways=2, granule=32)


async def ask(ctx, watch, *requests, slot=1, generation=7, dead=0):
    await watch.drive_requests((slot, generation, dead, r) for r in requests)(ctx)


async def come(ctx, watch, *completions, slot=1, generation=7):
    await watch.drive_completions((slot, generation, c) for c in completions)(ctx)


@pytest.mark.parametrize("size, ways", [(2, 1), (16, 2), (64, 4), (256, 2)])
def test_one_requester_uses_all_entries(size, ways):
    """Tags in sequence fill everything; then the next request waits for a place in its set."""
    reads = [read(tag, address=0x1000 + 4 * tag) for tag in range(size + 1)]
    order = random.Random(seed()).sample(reads[:size], size)
    waited = []

    async def script(ctx, watch):
        await ask(ctx, watch, *reads[:size])
        await ctx.tick()
        assert len(watch.golden.open) == size and not ctx.get(watch.dut.held)
        watch.waiting.append((1, 7, 0, reads[size]))
        for n, r in enumerate(order):
            await ctx.tick().repeat(12)
            assert ctx.get(watch.dut.held)
            await come(ctx, watch, *split(r, 0, []))
            # A try is under way at most every 4 cycles.
            await ctx.tick().repeat(12)
            if watch.accepted > size:
                waited.append(n)
                break
        for r in [*order[n + 1:], reads[size]]:
            await come(ctx, watch, *split(r, 0, []))

    watch = playing(dict(ports=2, entries=size, ways=ways, granule=1024), script)
    watch.finish()
    assert waited and not any(watch.stats.values())


def test_a_name_in_use_waits_for_its_end():
    """The same slot, requester ID and tag: the second request is taken after the first ended."""
    first, second = read(3, length=32), read(3, address=0x2004)

    async def script(ctx, watch):
        await ask(ctx, watch, first)
        watch.waiting.append((1, 7, 0, second))
        parts = split(first, 0, [1])
        for part in parts:
            await ctx.tick().repeat(20)
            assert watch.accepted == 1 and ctx.get(watch.dut.held)
            await come(ctx, watch, part)
        await ctx.tick().repeat(8)
        assert watch.accepted == 2
        # Under another slot, requester or high tag bits it is another name.
        await ask(ctx, watch, second, slot=0)
        await ask(ctx, watch, read(3, requester=0x0101), read(3 + 256), read(3 + 512))
        await come(ctx, watch, *split(second, 0, []), slot=0)
        for r in (second, read(3, requester=0x0101), read(3 + 256), read(3 + 512)):
            await come(ctx, watch, *split(r, 0, []))

    watch = playing(SMALL, script)
    watch.finish()
    assert watch.accepted == 6 and not any(watch.stats.values())


def test_every_end_of_a_request():
    """Split reads of 4096 bytes, CRS, UR after a part, writes, AtomicOps; then all is too late."""
    big = Tlp(1, 0, length=1024, first_be=15, last_be=15, address=0x1_0000_0000, tag=1)
    crs = Tlp(0, 4, length=1, first_be=15, target_id=0x100, tag=2)
    torn = read(3, length=64)
    write = Tlp(2, 4, length=1, first_be=15, payload=bytes(4), target_id=0x100, tag=4)
    cas = Tlp(3, 0b01110, length=8, payload=bytes(32), address=0x40, tag=5)
    empty = Tlp(0, 0, length=1, first_be=0, address=0x1044, tag=6)
    ends = [
        *split(big, 0, [1, 2, 3]),
        complete(crs, CompletionStatus.CRS, 0),
        split(torn, 0, [2])[0],
        dataclasses.replace(split(torn, 0, [2])[1], status=1, payload=b"", length=0, fmt=0),
        complete(write, CompletionStatus.SC, 0),
        complete(cas, CompletionStatus.SC, 0, bytes(16)),
        *split(empty, 0, []),
    ]

    async def script(ctx, watch):
        await ask(ctx, watch, big, crs, torn, write, cas, empty)
        await come(ctx, watch, *ends)
        await ctx.tick()
        assert not watch.golden.open
        await come(ctx, watch, *ends)

    watch = playing(SMALL, script)
    watch.finish()
    assert watch.causes == {DropCause.NONE: len(ends), DropCause.UNEXPECTED: len(ends)}


READ_1 = "00000001 01002a01 00001000"     # one byte at 1000h
READ_1_AT_3 = "00000001 01002a08 00001000"
READ_0 = "00000001 01002a00 00001000"     # of zero length
READ_4 = "00000001 01002a0f 00001000"
READ_128 = "00000020 01002aff 00001000"
READ_4_AT_3D = "00000002 01002a1e 0000103c"  # 103Dh to 1040h
LOCKED = "01000001 01002a0f 00001000"
CONFIG_READ = "04000001 01002a0f 03000000"
IO_READ, IO_WRITE = "02000001 01002a0f 00001000", "42000001 01002a0f 00001000 00000000"
FETCH_ADD = "4c000001 01002a00 00001000 00000001"
DATA = " 00112233"


@pytest.mark.parametrize("request_, completions, irregular", [
    # As it should be: byte count and lower address of what is left.
    (READ_128, ["4a000020 03000080 01002a00" + 32 * DATA], 0),
    (READ_128, ["4a000010 03000080 01002a00" + 16 * DATA,
                "4a000010 03000040 01002a40" + 16 * DATA], 0),
    (READ_4_AT_3D, ["4a000001 03000004 01002a3d" + DATA, "4a000001 03000001 01002a40" + DATA], 0),
    (READ_0, ["4a000001 03000001 01002a00" + DATA], 0),
    (CONFIG_READ, ["0a000000 03004004 01002a00"], 0),       # Request Retry Status
    (READ_128, ["0a000000 03002080 01002a00"], 0),          # Unsupported Request
    (READ_128, ["4a000010 03000080 01002a00" + 16 * DATA,
                "0a000000 03008040 01002a40"], 0),          # Completer Abort
    (READ_128, ["0a000000 03006080 01002a00"], 0),          # a reserved status
    (LOCKED, ["4b000001 03000004 01002a00" + DATA], 0),
    (FETCH_ADD, ["4a000001 03000004 01002a00" + DATA], 0),
    (IO_WRITE, ["0a000000 03000004 01002a00"], 0),
    # Byte counts of whole dwords.
    (READ_1, ["4a000001 03000004 01002a00" + DATA], 1),
    (READ_1_AT_3, ["4a000001 03000004 01002a03" + DATA], 1),
    (READ_1_AT_3, ["4a000001 03000004 01002a00" + DATA], 1),
    (READ_0, ["4a000001 03000004 01002a00" + DATA], 1),
    # Lower addresses that stand, or are 0.
    (READ_128, ["4a000010 03000080 01002a20" + 16 * DATA,
                "4a000010 03000040 01002a20" + 16 * DATA], 2),
    (READ_128, ["4a000010 03000080 01002a00" + 16 * DATA,
                "4a000010 03000040 01002a00" + 16 * DATA], 1),
    # BCM: the byte count of the first part is its own.
    (READ_128, ["4a000010 03001040 01002a00" + 16 * DATA,
                "4a000010 03000040 01002a40" + 16 * DATA], 0),
    (READ_128, ["4a000020 03001080 01002a00" + 32 * DATA], 0),
    # The byte count stands, and everything has come.
    (READ_128, ["4a000010 03000080 01002a00" + 16 * DATA,
                "4a000010 03000080 01002a40" + 16 * DATA], 1),
    # The byte count says that nothing follows.
    (READ_128, ["4a000010 03000040 01002a00" + 16 * DATA], 1),
    # Too much data, too little, data where there is none.
    (READ_4, ["4a000002 03000004 01002a00" + 2 * DATA], 1),
    (READ_4, ["4a000002 03000008 01002a00" + 2 * DATA], 1),
    (READ_4, ["0a000000 03000004 01002a00"], 1),
    (CONFIG_READ, ["0a000000 03000004 01002a00"], 1),
    (IO_READ, ["4a000002 03000004 01002a00" + 2 * DATA], 1),
    (IO_WRITE, ["4a000001 03000004 01002a00" + DATA], 1),
    (FETCH_ADD, ["4a000002 03000008 01002a00" + 2 * DATA], 1),
    (READ_128, ["4a000001 03002080 01002a00" + DATA], 1),
    # What only the requester may judge, and nobody counts.
    (IO_READ, ["4a000001 03000001 01002a03" + DATA], 0),
    (LOCKED, ["4a000001 03000004 01002a00" + DATA], 0),
    (READ_4, ["4a702001 03000004 01002a00" + DATA], 0),     # another class and other attributes
])
def test_a_completion_of_an_open_request_passes(request_, completions, irregular):
    """Whatever else is in it (2.3.2 is for requesters); the request ends with the last one."""
    async def script(ctx, watch):
        await ask(ctx, watch, Tlp.unpack(bytes.fromhex(request_)))
        for text in completions:
            await ctx.tick().repeat(8)
            assert not ctx.get(watch.dut.drained[1])
            await come(ctx, watch, Tlp.unpack(bytes.fromhex(text)))
        await ctx.tick().repeat(8)
        assert ctx.get(watch.dut.drained[1])

    watch = playing(SMALL, script)
    watch.finish()
    assert watch.causes == {DropCause.NONE: len(completions)}
    assert watch.stats["irregular"] == irregular


def test_a_late_completion_does_not_match_a_newer_request():
    """The tag is used again after a fence: only the generation tells old from new."""
    old, new = read(9), read(9)

    async def script(ctx, watch):
        await ask(ctx, watch, old, generation=7)
        await fence(ctx, watch, 1)
        await come(ctx, watch, *split(old, 0, []), generation=7)
        await ask(ctx, watch, new, generation=8)
        await come(ctx, watch, *split(old, 0, []), generation=7)
        await come(ctx, watch, *split(new, 0, []), generation=8)

    watch = playing(SMALL, script)
    watch.finish()
    assert watch.causes == {DropCause.UNEXPECTED: 1, DropCause.STALE: 1, DropCause.NONE: 1}
    assert watch.answered == 1


async def fence(ctx, watch, *slots):
    """Fence slots until they are drained; return the cycles that took."""
    mask, cycles = sum(1 << n for n in slots), 0
    ctx.set(watch.dut.fence, ctx.get(watch.dut.fence) | mask)
    while True:
        await ctx.tick()
        cycles += 1
        if ctx.get(watch.dut.drained) & mask == mask:
            break
    ctx.set(watch.dut.fence, ctx.get(watch.dut.fence) & ~mask)
    return cycles


@pytest.mark.parametrize("status", [CompletionStatus.UR, CompletionStatus.CA])
def test_a_fence_answers_every_entry_in_time(status):
    """All 256 entries in as many rounds as there are ways, and one: 1536 cycles."""
    rng = random.Random(seed())
    reads = [random_request(rng, requesters=1) for _ in range(256)]
    for tag, r in enumerate(reads):
        r.tag = tag
    took = []

    async def script(ctx, watch):
        await ask(ctx, watch, *reads)
        await come(ctx, watch, *(split(r, 0, [1])[0] for r in reads if r.kind.startswith("MRd")))
        await ctx.tick().repeat(10)  # the last of them may end its request
        left = len(watch.golden.open)
        took.append(await fence(ctx, watch, 1))
        await ctx.tick().repeat(10)
        assert watch.answered == left > 200

    playing(dict(ports=2, status=status), script).finish()
    assert took[0] <= 3 * 512


def test_answers_of_a_contained_slot():
    """Completer Abort for it, Unsupported Request for another fenced slot."""
    statuses = []

    async def script(ctx, watch):
        for aborted in (0b01, 0b10, 0b00, 0b11):
            ctx.set(watch.dut.abort, aborted)
            watch.golden.aborted = {n for n in range(2) if aborted >> n & 1}
            for slot in range(2):
                await ask(ctx, watch, *(read(n) for n in range(4)), slot=slot)
            before = watch.answered
            for slot in range(2):
                await fence(ctx, watch, slot)
            await ctx.tick().repeat(10)
            assert watch.answered == before + 8
            statuses.append(watch.golden.aborted)

    playing(SMALL, script).finish()
    assert len(statuses) == 4


def test_software_that_ends_the_containment_before_the_sweep():
    """What was open when the slot was contained is aborted; what comes later is not."""
    async def script(ctx, watch):
        for cycles in range(1, 60, 4):
            ctx.set(watch.dut.abort, 1)
            watch.golden.aborted = {0}
            await ask(ctx, watch, *(read(n) for n in range(8)), slot=0)
            before = watch.answered
            ctx.set(watch.dut.fence, 1)
            await ctx.tick().repeat(cycles)
            ctx.set(watch.dut.abort, 0)
            await fence(ctx, watch, 0)
            await ctx.tick().repeat(10)
            assert watch.answered == before + 8
            watch.golden.aborted = set()
            await ask(ctx, watch, read(1), read(2), slot=0)
            await fence(ctx, watch, 0)
            await ctx.tick().repeat(10)
            assert watch.answered == before + 10

    playing(SMALL, script).finish()


def asked_while_still_fenced(design=CompletionTracker):
    """Requests that are taken when the containment is over and the slot drained, but fenced."""
    async def script(ctx, watch):
        for cycles in range(1, 30, 4):
            ctx.set(watch.dut.abort, 1)
            watch.golden.aborted = {0}
            await ask(ctx, watch, *(read(n) for n in range(4)), slot=0)
            before = watch.answered
            ctx.set(watch.dut.fence, 1)
            await ctx.tick().repeat(cycles)
            ctx.set(watch.dut.abort, 0)
            # The answer of the last one is on its way when the slot is drained.
            await ctx.tick().until(watch.dut.drained[0])
            await ctx.tick().repeat(20)
            assert watch.answered == before + 4
            watch.golden.aborted = set()
            await ask(ctx, watch, read(1), read(2), slot=0)
            await fence(ctx, watch, 0)
            await ctx.tick().repeat(20)
            assert watch.answered == before + 6

    playing(SMALL | {"design": design}, script).finish()


def test_what_comes_when_a_contained_slot_is_drained_is_not_aborted():
    """Unsupported Request, as for every fenced slot."""
    asked_while_still_fenced()


def test_an_abort_that_outlives_its_slot_is_found():
    with pytest.raises(AssertionError):
        asked_while_still_fenced(mutant(CompletionTracker, (
            "self._aborted & self.fence & ~self.drained", "self._aborted & self.fence")))


def test_other_slots_go_on_while_a_slot_is_fenced():
    """Nobody takes the answers of slot 0; slot 1 works all the same, requests to slot 0 as well."""
    bench = Bench(**SMALL)
    watch = Watch(bench)

    async def script(ctx):
        ctx.set(bench.dut.deadline, 30_000)
        await ctx.tick().repeat(10)
        await ask(ctx, watch, *(read(n) for n in range(6)), slot=0)
        ctx.set(bench.dut.fence, 1)
        for n in range(30):
            r = read(8 + n % 4)
            await ask(ctx, watch, r)
            await come(ctx, watch, *split(r, 0, []))
        await come(ctx, watch, *(split(read(n), 0, [])[0] for n in range(6)), slot=0)
        await ask(ctx, watch, read(7), slot=0)
        assert watch.answered == 1 and watch.causes == {DropCause.NONE: 30, DropCause.FENCED: 6}
        ctx.set(bench.answer.ready, 1)
        await ctx.tick().repeat(200)
        assert watch.answered == 7 and ctx.get(bench.dut.drained) == 3

    simulate(bench, script, background=[*watch.background(), watch.take(bench.verdict)])
    watch.finish()


@pytest.mark.parametrize("deadline", [0, 1, 31, 32, 33, 500])
def test_deadline(deadline):
    """Reported once, not early, at most two granules and a round late; answered when fenced."""
    async def script(ctx, watch):
        ctx.set(watch.dut.deadline, deadline)
        for n in range(8):
            await ask(ctx, watch, read(n, address=0x1000 + 4 * n), slot=n & 1)
            await ctx.tick().repeat(7)
        await ctx.tick().repeat(deadline + 64 + 32 + 40)
        assert watch.expired == 8 == len(watch.golden.open)
        await fence(ctx, watch, 0, 1)

    watch = playing(SMALL, script, deadline=deadline)
    watch.finish()
    assert watch.stats["expired"] == watch.stats["answered"] == 8


@pytest.mark.long
def test_the_longest_deadline_does_not_wrap():
    """4095 granules, over the end of the counter's range."""
    granule, seen = 8, []
    dut = CompletionTracker(ports=1, entries=2, ways=1, granule=granule)
    wait = 4095 * granule

    async def script(ctx):
        ctx.set(dut.deadline, wait)
        for start in (40_000,):
            await ctx.tick().repeat(start)
            ctx.set(dut.request.valid, 1)
            await ctx.tick().until(dut.request.ready)
            ctx.set(dut.request.valid, 0)
            strobes = []
            for n in range(wait + 3 * granule):
                if ctx.get(dut.expired.strobe):
                    strobes.append(n)
                await ctx.tick()
            assert len(strobes) == 1 and wait < strobes[0] <= wait + 2 * granule + 8
            ctx.set(dut.fence, 1)
            ctx.set(dut.answer.ready, 1)
            await ctx.tick().until(dut.drained[0])
            ctx.set(dut.fence, 0)
            seen.append(start)

    simulate(dut, script)
    assert seen == [40_000]


def test_deadlines_reach_what_hosts_wait_for():
    """65 ms, where the longer half of Completion Timeout ranges begins (7.5.3.16), at 250 MHz."""
    cycles = 65 * 250_000
    block = control_block("host", rows=8, paths=2, peers=4, streams=1, width=64)
    register = block.find("request_deadline").register
    assert 2 ** register.fields[0].width - 1 >= cycles
    assert len(CompletionTracker().deadline) == register.fields[0].width
    assert cycles <= (2 ** STAMP // 2 - 1) * 4096


def test_latency():
    """4 cycles, up to 7 behind the sweep; never more than 13 if verdicts are taken."""
    async def script(ctx, watch):
        for n in range(40):
            await ask(ctx, watch, read(n))
            await ctx.tick().repeat(n % 7 + 4)
            await come(ctx, watch, *split(read(n), 0, []))

    watch = playing(dict(ports=2), script)
    assert min(watch.waits) == 4 and max(watch.waits) <= 7
    rng = random.Random(seed())
    # All in one set of many, where they get in each other's way.
    def request(rng):
        return dataclasses.replace(random_request(rng, requesters=1),
                                   tag=rng.choice([0x00, 0x21, 0x42, 0x63]))
    watch = run(rng, count=50, ports=2, entries=64, ways=2, granule=128, requests=request)
    assert 8 < max(watch.waits[8:]) <= 13


def test_throughput():
    """One request and one completion in 4 cycles, at the same time, with the sweep between."""
    reads = [read(n) for n in range(100)]
    took = {}

    bench = Bench()
    watch = Watch(bench)

    def timed(name, process):
        async def wrapped(ctx):
            await ctx.tick().repeat(200 if name == "requests" else 220)
            start = watch.now
            await process(ctx)
            took[name] = watch.now - start
        return wrapped

    async def last(ctx):
        ctx.set(bench.dut.deadline, 100_000)
        await ctx.tick().repeat(700)

    simulate(bench, last,
             timed("requests", watch.drive_requests((1, 7, 0, r) for r in reads)),
             timed("completions", watch.drive_completions(
                 (1, 7, c) for r in reads for c in split(r, 0, []))),
             background=[*watch.background(), watch.take(bench.verdict), watch.take(bench.answer)])
    watch.finish()
    assert max(took.values()) <= 4 * len(reads) + 4


def trips(design, granule):
    """Reads in several parts, in another order than they were asked: what is told of round trips,
    and what must be; one read is answered behind a fence instead."""
    bench = Bench(design=design, ports=2, entries=16, granule=granule, timed=True)
    watch, dut, order = Watch(bench), bench.dut, (3, 0, 5, 1, 4)
    begun, last, told = {}, {}, []

    async def record(ctx):
        now = 0
        async for _, _, taken, request, came, completion, trip in ctx.tick().sample(
                dut.request.valid & dut.request.ready, dut.request.p.tag,
                dut.completion.valid & dut.completion.ready, dut.completion.p.tag, dut.trip):
            now += 1
            if taken:
                begun[request] = now
            if came:
                last[completion] = now
            if trip["strobe"]:
                told.append((now, trip["slot"], trip["time"]))

    async def script(ctx):
        ctx.set(dut.deadline, 100_000)
        await ctx.tick().repeat(20)
        for tag in range(6):
            await ask(ctx, watch, read(tag, length=64), slot=tag & 1)
            await ctx.tick().repeat(3 + 5 * tag)
        for tag in order:
            first, *others = split(read(tag, length=64), 0, [1])
            await come(ctx, watch, first, slot=tag & 1)
            await ctx.tick().repeat(700 * tag + 9)
            await come(ctx, watch, *others, slot=tag & 1)
            await ctx.tick().repeat(12)
        await fence(ctx, watch, 0)
        await ctx.tick().repeat(100)

    simulate(bench, script, background=[
        *watch.background(), record, watch.take(bench.verdict), watch.take(bench.answer)],
        deadline=20_000)
    watch.finish()
    assert watch.answered == 1
    return told, [(last[tag] + 1, tag & 1, last[tag] - begun[tag]) for tag in order]


@pytest.mark.parametrize("granule", [256, 4096])
def test_round_trips_are_timed(granule):
    """A cycle after the last completion; in cycles, or units of 16, by which all may be early."""
    unit = granule // 256
    told, must = trips(CompletionTracker, granule)
    assert [trip[:2] for trip in told] == [trip[:2] for trip in must]
    for (_, _, time), (_, _, cycles) in zip(told, must, strict=True):
        assert cycles - unit < time * unit < cycles + unit
    assert any(cycles > 4 * granule for _, _, cycles in must) or granule > 256


@pytest.mark.parametrize("old, new", [
    ("self.trip.strobe.eq(passes & final)", "self.trip.strobe.eq(passes)"),
    ("self.trip.strobe.eq(passes & final)", "self.trip.strobe.eq(self._closed)"),
    ("- Cat(e.fine, e.stamp)", "- Cat(C(0, FINE), e.stamp)"),
    ("update.fine.eq(self._fine)", "update.fine.eq(entry.fine)"),
])
def test_wrong_times_are_found(old, new):
    told, must = trips(mutant(CompletionTracker, (old, new)), 256)
    assert told != must


def test_reset_forgets_everything():
    dut = CompletionTracker(ports=2, entries=16, granule=32)
    reset = Signal()

    async def script(ctx):
        ctx.set(dut.verdict.ready, 1)
        for _ in range(2):
            ctx.set(dut.request.valid, 1)
            await ctx.tick().until(dut.request.ready)
            ctx.set(dut.request.valid, 0)
            await ctx.tick()
            assert ctx.get(dut.drained) == 0b10
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            await ctx.tick()
            assert ctx.get(dut.drained) == 0b11
            ctx.set(dut.completion.valid, 1)
            await ctx.tick().until(dut.completion.ready)
            ctx.set(dut.completion.valid, 0)
            assert ctx.get(dut.verdict.p.cause) == DropCause.UNEXPECTED

    simulate(ResetInserter(reset)(dut), script)


@pytest.mark.parametrize("parameters, message", [
    (dict(ports=0), "ports must be 1 to 32, not 0"),
    (dict(ports=33), "ports must be 1 to 32, not 33"),
    (dict(entries=100), "entries must be a power of two of at least 2, not 100"),
    (dict(entries=8, ways=8), "ways must be a power of two less than entries, not 8"),
    (dict(ways=3), "ways must be a power of two less than entries, not 3"),
    (dict(granule=256), "granule must be a power of two of at least 512 cycles, not 256"),
    (dict(granule=1000), "granule must be a power of two of at least 512 cycles, not 1000"),
    (dict(entries=16, granule=128, timed=True),
     "granule must be at least 256 cycles if trips are timed, not 128"),
    (dict(status=CompletionStatus.SC), "status must be UR or CA, not "),
])
def test_arguments(parameters, message):
    with pytest.raises(ValueError, match=message):
        CompletionTracker(**parameters)


def test_info_must_be_a_view():
    with pytest.raises(TypeError, match="info must be a view of TlpInfo, not "):
        tracked_completion(Signal(8), slot=0, generation=0)


def test_golden_tracker_by_hand():
    """A read of 134 bytes from 0xBD, whose first part ended at 0x100, is answered for the rest.

    The answer is written from the drawing: Cpl, completer 5a:01.0, UR, 67 bytes, lower address 0.
    """
    golden = Tracker(bus=0x5A)
    request = Tlp(0, 0, length=34, first_be=0b1110, last_be=0b0111, address=0xBC,
                  requester_id=0x100, tag=0x2A5, tc=5, attr=0b110)
    parts = split(request, 0, [2])
    assert [(p.byte_count, p.lower_address, p.length) for p in parts] == [
        (134, 0x3D, 17), (67, 0, 17)]
    assert golden.request(1, 7, 0, request) and not golden.request(1, 7, 0, request)
    assert golden.completion(1, 8, parts[0]) == DropCause.STALE
    assert golden.completion(0, 7, parts[0]) == DropCause.UNEXPECTED
    assert golden.completion(1, 7, parts[0], fenced=True) == DropCause.FENCED
    assert golden.completion(1, 7, parts[0]) == DropCause.NONE
    assert not golden.irregular
    assert golden.overdue(10, 9) == [(1, 0x100, 0x2A5)] and not golden.overdue(10, 10)
    tlp = golden.answer((1, 0x100, 0x2A5))
    assert tlp.pack().hex() == "0ad42000" "5a082043" "0100a500"
    assert not golden.open
