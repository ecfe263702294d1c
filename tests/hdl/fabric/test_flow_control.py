"""dxpu.fabric.engine with flow control: two engines, and slots that take TLPs, or do not."""

import functools
import random
from collections import defaultdict

import pytest
from dxpu.fabric.credit.class_queues import ClassSpace
from dxpu.fabric.credit.credits import grants_for
from dxpu.fabric.credit.sizing import FlowControl
from dxpu.fabric.wire.format import EventCode
from dxpu.tlp.types import TlpClass
from tests.hdl.fabric.test_engine import ROWS, pair
from tests.support.engine_bench import open_anew
from tests.support.testbench import Packet, count_pulses, drive_packets, drive_words, seed, simulate

P, NP, CPL = TlpClass
GENERATION = 0x1207
#: Counters of what flow control, and lives, refuse.
REFUSALS = ("tx_refused", "tx_large", "tx_unbound", "tx_unroutable", "rx_unbound")


def tlp(rng, row, cls, dwords=None, life=0):
    """A write, read or completion."""
    data = 0 if cls is NP else rng.randint(1, 32) if dwords is None else dwords
    kind = {P: 0x40, NP: 0x00, CPL: 0x4A}[cls]
    raw = bytes([kind, 0, data >> 8, data & 0xFF]) + rng.randbytes(8 + 4 * data)
    return Packet(raw, dict(row=row, life=life))


def kind(data):
    """Class and data units of a TLP of :func:`tlp`."""
    cls = {0x40: P, 0x00: NP, 0x4A: CPL}[data[0]]
    return cls, 0 if cls is NP else -(-(len(data) - 12) // 16)


class Slots:
    """What is behind an engine: keeps TLPs in queues by row and class, and takes them from there
    unless ``stalled`` has the pair."""

    def __init__(self, engine, grants):
        self.engine, self.grants = engine, grants
        self.queues, self.got = defaultdict(list), defaultdict(list)
        self.stalled, self.peak = set(), defaultdict(int)
        self.times = []

    async def receive(self, ctx):
        o, chunk = self.engine.tlp_o, b""
        ctx.set(o.ready, 1)
        size = len(o.payload.data) // 8
        async for *_, valid, beat in ctx.tick().sample(o.valid, o.payload):
            if not valid:
                continue
            chunk += beat.data.to_bytes(size, "little")[:4 * beat.dwords]
            if beat.last:
                cls, units = kind(chunk)
                queue = self.queues[beat.meta.row, cls]
                queue.append((chunk, units))
                headers, data = self.grants[cls.value]
                assert len(queue) <= headers, "more TLPs than were granted"
                assert sum(u for _, u in queue) <= data, "more data than was granted"
                self.peak[beat.meta.row, cls] = max(len(queue), self.peak[beat.meta.row, cls])
                chunk = b""

    async def take(self, ctx):
        """A TLP every few cycles, of any queue that may be emptied."""
        engine, turn, now = self.engine, 0, 0
        while True:
            ready = [key for key, queue in self.queues.items()
                     if queue and key not in self.stalled]
            ctx.set(engine.released_strobe, bool(ready))
            if ready:
                turn += 1
                row, cls = ready[turn % len(ready)]
                data, units = self.queues[row, cls].pop(0)
                self.got[row, cls].append(data)
                self.times.append((now, row))
                ctx.set(engine.released, dict(row=row, cls=cls, units=units))
            await ctx.tick()
            ctx.set(engine.released_strobe, 0)
            await ctx.tick().repeat(2)
            now += 3


@functools.cache
def flow(width, headers=8, period=256, line_bytes=None):
    """One for all tests, so that they share a simulator."""
    beats = 2048 * 8 // width
    grants = (grants_for(width, beats, headers=headers),
              grants_for(width, beats // 4, headers=4, units=2),
              grants_for(width, beats, headers=headers))
    return FlowControl(ClassSpace(width, p=1100, np=300, cpl=1100), grants, period=period,
                       line_bytes=line_bytes)


class Fabric:
    """A pair with flow control in both directions, its slots, and what bindings do."""

    def __init__(self, width=64, **options):
        self.grants = flow(width, **options).grants
        self.dut = pair(width, flow=flow(width, **options))
        self.host, self.box = (Slots(e, self.grants) for e in (self.dut.host, self.dut.box))
        self.host_pulses, self.box_pulses = {}, {}
        self.host_events, self.box_events = [], []

    def follow(self, engine, into):
        async def process(ctx):
            ctx.set(engine.event.ready, 1)
            async for *_, valid, event in ctx.tick().sample(engine.event.valid,
                                                            engine.event.payload):
                if valid:
                    into.append((event.row, event.code))
        return process

    def background(self):
        dut = self.dut
        return [self.host.receive, self.host.take, self.box.receive, self.box.take,
                self.follow(dut.host, self.host_events), self.follow(dut.box, self.box_events),
                count_pulses(dut.host, self.host_pulses, *REFUSALS),
                count_pulses(dut.box, self.box_pulses, *REFUSALS)]

    def run(self, *processes, harm=(), deadline=100_000):
        async def set_up(ctx):
            await self.dut.set_up(ctx, open_rows=0)
            for engine in (self.dut.host, self.dut.box):
                for n in range(ROWS):
                    ctx.set(engine.generations[n], GENERATION & 0xFF)
            for row in range(ROWS):
                await self.begin(ctx, row, EventCode.BIND)
            for process in processes:
                await process(ctx)

        simulate(self.dut, set_up, background=[*self.background(), *harm], deadline=deadline)

    async def begin(self, ctx, row, code, life=0):
        """What the host's and the box's bindings do when a life begins."""
        host, box = self.dut.host, self.dut.box
        bit = 1 << row
        ctx.set(host.receiving, ctx.get(host.receiving) & ~bit)
        ctx.set(host.lives[row], life)
        ctx.set(host.open, ctx.get(host.open) | bit)
        event = dict(row=row, code=code, generation=GENERATION, argument=life)
        await drive_words(host.control, [event])(ctx)
        while (row, code) not in self.box_events:
            await ctx.tick()
        self.box_events.remove((row, code))
        ctx.set(box.open, ctx.get(box.open) & ~bit)
        ctx.set(box.receiving, ctx.get(box.receiving) & ~bit)
        for cls in TlpClass:
            self.box.queues[row, cls].clear()
        await ctx.tick().repeat(30)
        ctx.set(box.lives[row], life)
        ctx.set(box.open, ctx.get(box.open) | bit)
        ctx.set(box.receiving, ctx.get(box.receiving) | bit)
        event["code"] = EventCode.RESET_DONE
        await drive_words(box.control, [event])(ctx)
        while (row, EventCode.RESET_DONE) not in self.host_events:
            await ctx.tick()
        self.host_events.remove((row, EventCode.RESET_DONE))
        for cls in TlpClass:
            self.host.queues[row, cls].clear()
        ctx.set(host.receiving, ctx.get(host.receiving) | bit)

    def quiet(self):
        """Flow control refused and dropped nothing."""
        for pulses in (self.host_pulses, self.box_pulses):
            assert not any(pulses.values()), pulses


def by_queue(packets):
    queues = defaultdict(list)
    for p in packets:
        queues[p.meta["row"], kind(p.data)[0]].append(p.data)
    return queues


async def until(ctx, condition, cycles=40_000):
    for _ in range(cycles // 20):
        if condition():
            return
        await ctx.tick().repeat(20)
    raise AssertionError("not in time")


def random_tlps(rng, count, rows=range(ROWS)):
    return [tlp(rng, rng.choice(rows), rng.choice(list(TlpClass))) for _ in range(count)]


@pytest.mark.parametrize("width, loss", [(64, 0.05), *(
    pytest.param(width, loss, marks=pytest.mark.long)
    for width, loss in ((64, 0), (32, 0.05), (256, 0.05), (512, 0.05)))])
def test_all_arrives_and_no_queue_overflows(width, loss):
    """Both ways; with losses credits are lost, late and doubled as well."""
    rng = random.Random(seed())
    it = Fabric(width)
    down, up = random_tlps(rng, 35), random_tlps(rng, 35)
    bound = []

    async def traffic(ctx):
        bound.append(1)
        await drive_packets(it.dut.host.tlp_i, down)(ctx)
        await until(ctx, lambda: sum(map(len, it.box.got.values())) == len(down)
                    and sum(map(len, it.host.got.values())) == len(up))

    async def upwards(ctx):
        while not bound:
            await ctx.tick()
        await drive_packets(it.dut.box.tlp_i, up)(ctx)

    async def harm(ctx):
        while loss:
            await ctx.tick()
            ctx.set(it.dut.lose_down, rng.random() < loss)
            ctx.set(it.dut.lose_up, rng.random() < loss)

    it.run(traffic, harm=[harm, upwards])
    assert it.box.got == by_queue(down) and it.host.got == by_queue(up)
    it.quiet()


@pytest.mark.long
@pytest.mark.parametrize("cls", [NP, P])
def test_a_slot_that_takes_nothing_slows_no_other(cls):
    """Rows 0 and 2 get their TLPs as fast as without the stall; row 1 gets what may pass, at once,
    and the rest when it takes TLPs again."""
    rng = random.Random(seed())
    others = [tlp(rng, rng.choice([0, 2]), rng.choice([P, P, CPL, NP]), 32) for _ in range(160)]
    mine = [tlp(rng, 1, cls, 2) for _ in range(10)]
    passing = [tlp(rng, 1, c, 2) for c in (P, CPL)] if cls is NP else []
    took = {}

    def run(stalled):
        it = Fabric()

        async def traffic(ctx):
            if stalled:
                it.box.stalled.add((1, cls))
            await drive_packets(it.dut.host.tlp_i, mine)(ctx)
            await ctx.tick().repeat(500)
            assert it.box.peak[1, cls] == it.grants[cls.value][0] or not stalled
            before = len(it.box.times)
            await drive_packets(it.dut.host.tlp_i, [*passing, *others])(ctx)
            await until(ctx, lambda: len(it.box.times) >= before + len(others) + len(passing))
            times = [t for t, row in it.box.times[before:] if row != 1]
            took[stalled] = times[-1] - times[0]
            got = [len(it.box.got.get((1, c), ())) for c in (NP, P, CPL)]
            assert got == ([0 if stalled else 10, 1, 1] if cls is NP else
                           [0, 0 if stalled else 10, 0])
            it.box.stalled.clear()
            await until(ctx, lambda: sum(map(len, it.box.got.values()))
                        == len(mine) + len(passing) + len(others))

        it.run(traffic)
        assert it.box.got == by_queue([*mine, *passing, *others])
        it.quiet()

    run(False)
    run(True)
    assert took[False] >= 0.95 * took[True], took


def test_a_new_life_has_all_credits_and_nothing_of_the_old_one():
    """A slot stalls, is reset, and gets what is for its new life only."""
    rng = random.Random(seed())
    it = Fabric()
    old = [tlp(rng, 1, cls, 2) for cls in (NP, P, CPL) for _ in range(12)][:30]
    new = [tlp(rng, 1, cls, 2, life=1) for cls in (NP, P, CPL) for _ in range(9)]

    async def traffic(ctx):
        it.box.stalled |= {(1, cls) for cls in TlpClass}
        await drive_packets(it.dut.host.tlp_i, old[:20])(ctx)
        await ctx.tick().repeat(500)
        assert it.box.peak[1, NP] == it.grants[1][0]
        await it.begin(ctx, 1, EventCode.RESET, life=1)
        it.box.stalled.clear()
        await drive_packets(it.dut.host.tlp_i, new)(ctx)
        await until(ctx, lambda: sum(map(len, it.box.got.values())) >= len(new))
        await ctx.tick().repeat(1000)

    it.run(traffic)
    assert it.box.got == by_queue(new)
    assert it.host_pulses["tx_unroutable"] > 5 and it.host_pulses["tx_refused"] == 0


def test_tlps_that_no_credit_can_be_for_are_dropped():
    rng = random.Random(seed())
    it = Fabric()
    large, largest, small = (tlp(rng, 0, P, n) for n in (129, 128, 1))

    async def traffic(ctx):
        await drive_packets(it.dut.host.tlp_i, [large, largest, small])(ctx)
        await until(ctx, lambda: len(it.box.got[0, P]) == 2)

    it.run(traffic)
    assert it.box.got == by_queue([largest, small])
    assert it.host_pulses["tx_large"] == 1


def test_a_session_that_opens_anew_takes_its_credits_with_it():
    """What the row was granted before is worth nothing, until its next life begins."""
    rng = random.Random(seed())
    it = Fabric()
    old, between, new = ([tlp(rng, 1, cls, 2, life=life) for cls in TlpClass]
                         for life in (0, 0, 1))

    async def traffic(ctx):
        await drive_packets(it.dut.host.tlp_i, old)(ctx)
        await until(ctx, lambda: sum(map(len, it.box.got.values())) == len(old))
        for engine in (it.dut.host, it.dut.box):
            await open_anew(ctx, engine)
        await ctx.tick().repeat(50)
        # The row is open as before: it is credits alone that these lack.
        await drive_packets(it.dut.host.tlp_i, between)(ctx)
        await ctx.tick().repeat(2000)
        assert it.box.got == by_queue(old)
        await it.begin(ctx, 1, EventCode.BIND, life=1)
        await drive_packets(it.dut.host.tlp_i, new)(ctx)
        await until(ctx, lambda: sum(map(len, it.box.got.values())) >= len(old) + len(new))
        await ctx.tick().repeat(1000)

    it.run(traffic)
    assert it.box.got == by_queue([*old, *new])


def test_rows_have_less_under_way_while_others_might_send():
    """Nothing leaves the box: then each row gets the share of all rows. One that is busy alone gets
    all that there is room for; and what it has not used when it is idle again, it gets no more."""
    rng = random.Random(seed())
    period = 64
    options = dict(period=period, line_bytes=1500)
    it = Fabric(**options)
    (most, _), (few, _) = it.grants[0], flow(64, **options).shares(ROWS)[-1][0]
    assert few < most

    def writes(*rows):
        return [tlp(rng, row, P, 1) for row in rows]

    async def waiting(ctx, *numbers):
        """So many TLPs wait in the queues of the rows, and no more come."""
        await until(ctx, lambda: [len(it.box.queues[n, P]) for n in range(ROWS)] == [*numbers])
        await ctx.tick().repeat(1000)
        assert [len(it.box.queues[n, P]) for n in range(ROWS)] == [*numbers]

    async def traffic(ctx):
        it.box.stalled = {(row, P) for row in range(ROWS)}
        send = [row for _ in range(few + 1) for row in range(ROWS)]
        await drive_packets(it.dut.host.tlp_i, writes(*send))(ctx)
        await waiting(ctx, *[few] * ROWS)
        # Row 1 alone.
        it.box.stalled.remove((1, P))
        await drive_packets(it.dut.host.tlp_i, writes(*[1] * 4))(ctx)
        await until(ctx, lambda: len(it.box.got[1, P]) == few + 5)
        it.box.stalled.add((1, P))
        await drive_packets(it.dut.host.tlp_i, writes(*[1] * (most + 1)))(ctx)
        await waiting(ctx, few, most, few)
        # All leave; none has been busy for a while then.
        it.box.stalled.clear()
        await until(ctx, lambda: not any(it.box.queues.values()))
        await ctx.tick().repeat(5 * 16 * period)
        it.box.stalled = {(row, P) for row in range(ROWS)}
        await drive_packets(it.dut.host.tlp_i, writes(*[1] * (most + 1)))(ctx)
        await waiting(ctx, 0, few, 0)

    it.run(traffic)
    it.quiet()
