"""dxpu.mapping: windows, lookups and the commit protocol against models written from the specs."""

import random

import pytest
from amaranth import ResetInserter, Signal, Value

from dxpu.csr import markdown
from dxpu.mapping import (
    BoxTable, CommitCode, HostTable, Lookup, LookupKind, RowChange, RowCommit, WindowFollower,
    box_block, host_block,
)
from tests.support.testbench import access, check_stream, drive_words, seed, simulate

MEMORY, IO, BUS = LookupKind.MEMORY, LookupKind.IO, LookupKind.BUS


class Bridge:
    """A type 1 header and what it claims (PCI-to-PCI Bridge Architecture 1.2, 3.2.5)."""

    def __init__(self):
        self.raw = dict.fromkeys((0x04, 0x18, 0x1c, 0x20, 0x24, 0x28, 0x2c, 0x30), 0)

    def memory(self):
        r = self.raw[0x20]
        return (r & 0xfff0) << 16, (r & 0xfff00000) + 0xfffff

    def prefetchable(self):
        r = self.raw[0x24]
        return ((self.raw[0x28] << 32) + ((r & 0xfff0) << 16),
                (self.raw[0x2c] << 32) + (r & 0xfff00000) + 0xfffff)

    def io(self):
        low, high = self.raw[0x1c], self.raw[0x30]
        return (((high & 0xffff) << 16) + ((low & 0xf0) << 8),
                (high & 0xffff0000) + (low & 0xf000) + 0xfff)

    def buses(self):
        return self.raw[0x18] >> 8 & 0xff, self.raw[0x18] >> 16 & 0xff

    def claims(self, kind, value):
        def inside(window):
            return window[0] <= value <= window[1]

        if kind == MEMORY:
            return bool(self.raw[0x04] & 2) and (inside(self.memory())
                                                 or inside(self.prefetchable()))
        value &= 0xffffffff
        if kind == IO:
            return bool(self.raw[0x04] & 1) and inside(self.io())
        value &= 0xff
        return self.buses()[0] != 0 and inside(self.buses())


class Switch:
    """All bridges; the lowest downstream one that claims wins."""

    def __init__(self, ports):
        self.ports = [Bridge() for _ in range(ports)]
        self.upstream = Bridge()

    def update(self, function, register, value):
        bridges = (self.upstream, *self.ports)
        if function < len(bridges) and register * 4 in self.upstream.raw:
            bridges[function].raw[register * 4] = value

    def random_value(self, rng, kind):
        """A value that is likely at the edge of a window."""
        port = rng.choice((self.upstream, *self.ports))
        window = (rng.choice((port.memory(), port.prefetchable())) if kind == MEMORY
                  else port.io() if kind == IO else port.buses())
        bits = {MEMORY: 64, IO: 32, BUS: 8}[kind]
        near = rng.choice((0, 0, -1, 1, 0x1000, -0x1000, 1 << 20, -1 << 20, rng.getrandbits(20)))
        value = rng.choice((*window, *window, rng.getrandbits(bits), rng.getrandbits(32))) + near
        value &= (1 << bits) - 1
        # Bits above an I/O address or a bus number have no meaning.
        return value | (rng.getrandbits(64 - bits) << bits if bits < 64 else 0)


def random_update(rng, ports, function=None, offset=None):
    """A configuration write, mostly one that a window follows, mostly windows that are small."""
    if offset is None:
        offset = rng.choice((0x04, 0x18, 0x1c, 0x20, 0x24, 0x28, 0x2c, 0x30))
    if function is None:
        function = rng.choice((*[0] * 8, ports + 1, 63, *[rng.randint(1, ports)] * 60))
    value = rng.getrandbits(32)
    if offset == 0x04:
        value = value & ~3 | rng.choice((3, 3, 3, 3, 0, 1, 2))
    elif offset == 0x18:
        low = rng.choice((0, *[rng.randrange(256)] * 3))
        high = (low + rng.choice((-1, 0, 1, 5))) % 256
        value = value & 0xff0000ff | low << 8 | high << 16
    elif offset == 0x1c:
        low = rng.randrange(16)
        value = value & 0xffff0f0f | low << 4 | (low + rng.choice((-1, 0, 0, 1))) % 16 << 12
    elif offset in (0x20, 0x24):
        low = rng.randrange(4096)
        value = value & 0x000f000f | low << 4 | (low + rng.choice((-1, 0, 1, 9))) % 4096 << 20
    elif offset in (0x28, 0x2c):
        value = rng.choice((0, 0, 1, 1, 2, 0xffffffff, value))
    elif offset == 0x30:
        value = rng.choice((0, 0x10001, 0x20001, 0xffffffff, value))
    register = rng.randrange(1024) if rng.random() < 0.05 else offset // 4
    return {"strobe": 1, "function": function, "register": register, "value": value}


def configure(dut, updates, rng=None, gap=0):
    """Process that applies ``updates``."""
    async def process(ctx):
        for update in updates:
            ctx.set(dut.config, update)
            await ctx.tick()
            ctx.set(dut.config, {"strobe": 0, "function": 1, "register": 1, "value": 3})
            if gap and (n := rng.randrange(gap)):
                await ctx.tick().repeat(n)
    return process


class Monitor:
    """Checks every result against the model as it was in the cycle in which the request was taken;
    if ``shared``, of each port as it was in any cycle since the request was there."""

    def __init__(self, dut, ports, lookups=(0,), shared=False):
        self.dut, self.model, self.shared = dut, Switch(ports), shared
        self.lookups, self.seen = lookups, {n: [] for n in lookups}
        self.pending = {n: [] for n in lookups}
        self.done, self.hits, self.now = dict.fromkeys(lookups, 0), set(), 0
        self.latency = set()

    async def run(self, ctx):
        dut = self.dut
        signals = [x for n in self.lookups for x in self._signals(n)]
        async for *_, update, in ctx.tick().sample(*signals, dut.config):
            values = _[-len(signals):]
            for k, n in enumerate(self.lookups):
                there, asked, request, answered, result = values[5 * k:5 * k + 5]
                if answered:
                    since, possible, above = self.pending[n].pop(0)
                    assert (result.hit, result.port) in possible and result.upstream in above
                    self.hits.add((result.hit, result.port))
                    self.latency.add(self.now - since)
                    self.done[n] += 1
                if there:
                    value = request.bus if request.kind == BUS else request.address
                    self.seen[n].append([port.claims(request.kind, value)
                                         for port in (self.model.upstream, *self.model.ports)])
                if asked:
                    seen, self.seen[n] = self.seen[n], []
                    above, *claims = zip(*(seen if self.shared else seen[-1:]), strict=True)
                    self.pending[n].append((self.now, possible_results(claims), above))
            if update.strobe:
                self.model.update(update.function, update.register, update.value)
            self.now += 1

    def _signals(self, n):
        request, result = getattr(self.dut, f"lookup{n}"), getattr(self.dut, f"result{n}")
        return (request.valid, request.valid & request.ready, request.p,
                result.valid & result.ready, result.p)


def possible_results(claims):
    """What a lookup may find if each port claims as at one time of its list."""
    found = set()
    for port, seen in enumerate(claims):
        if any(seen):
            found.add((1, port))
        if all(seen):
            return found
    return found | {(0, 0)}


def request(kind, value, rng=None):
    """A request; the other field is at random, or also ``value``."""
    other = rng.getrandbits(64) if rng else value
    address, bus = (other, value) if kind == BUS else (value, other)
    return {"kind": kind, "address": address, "bus": bus & 0xff}


def ask(stream, model, count, rng, density=1.0, kinds=(MEMORY, MEMORY, IO, BUS)):
    """Process that asks ``count`` random questions about ``model`` as it is then."""
    async def process(ctx):
        for _ in range(count):
            while rng.random() > density:
                await ctx.tick()
            kind = rng.choice(kinds)
            ctx.set(stream.p, request(kind, model.random_value(rng, kind), rng))
            ctx.set(stream.valid, 1)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)
    return process


def take(result, density, rng):
    """Background process that takes results with gaps."""
    async def process(ctx):
        while True:
            ctx.set(result.ready, rng.random() < density)
            await ctx.tick()
    return process


@pytest.mark.parametrize("name, make", [
    ("ports", lambda n: HostTable(ports=n)), ("ports", lambda n: Lookup(ports=n)),
    ("ports", lambda n: WindowFollower(ports=n)), ("slots", lambda n: BoxTable(slots=n)),
    ("rows", lambda n: RowCommit(rows=n, with_slot=True)),
])
@pytest.mark.parametrize("count", [0, 33, "8"])
def test_sizes_are_checked(name, make, count):
    with pytest.raises(ValueError, match=f"{name} must be an integer from 1 to 32, not {count!r}"):
        make(count)


def test_lookups_are_checked():
    with pytest.raises(ValueError, match="lookups must be a positive integer, not 0"):
        HostTable(lookups=0)


@pytest.mark.parametrize("ports, shared", [(1, False), (5, False), (32, False), (5, True)])
def test_lookup_while_windows_change(ports, shared):
    rng = random.Random(seed())
    dut = HostTable(ports=ports, shared=shared)
    count = 600 if ports < 32 else 250
    monitor = Monitor(dut, ports, (0, 1), shared)
    # Every port is configured before the first question, so that questions find something.
    first = [random_update(rng, ports, n, offset) for n in range(ports + 1)
             for offset in Bridge().raw]
    later = [random_update(rng, ports) for _ in range(count // 4)]
    # A shared lookup clears its windows first, a port a cycle, and hears no updates meanwhile.
    cleared = ports if shared else 0

    async def bench(ctx):
        for _ in range(cleared):
            await ctx.tick()
        await configure(dut, first)(ctx)
        await configure(dut, later, rng, gap=4)(ctx)

    async def finish(ctx):
        while min(monitor.done.values()) < count:
            await ctx.tick()

    async def late(n, density, ctx):
        await ctx.tick().repeat(cleared + len(first) + 2)
        await ask(getattr(dut, f"lookup{n}"), monitor.model, count, rng, density)(ctx)

    async def software(ctx):
        manager = Manager(dut)
        while True:
            await ctx.tick().repeat(1 + rng.randrange(20))
            await manager.read(ctx, f"row[{rng.randrange(ports)}].io_limit")

    simulate(dut, bench, finish, lambda ctx: late(0, 1, ctx), lambda ctx: late(1, 0.6, ctx),
             background=[monitor.run, software,
                         take(dut.result0, 0.7, rng), take(dut.result1, 0.9, rng),
                         check_stream(dut.result0, "result0"),
                         check_stream(dut.result1, "result1")])
    assert not any(monitor.pending.values())
    assert len(monitor.hits) > ports * 0.7


def test_lookup_latency_and_throughput():
    rng = random.Random(seed())
    dut = HostTable(ports=8)
    monitor = Monitor(dut, 8, (0, 1))

    async def bench(ctx):
        await configure(dut, [random_update(rng, 8) for _ in range(300)])(ctx)
        start = monitor.now
        await ask(dut.lookup0, monitor.model, 200, rng)(ctx)
        await ctx.tick().repeat(3)
        assert monitor.now - start <= 204

    simulate(dut, bench, background=[monitor.run, take(dut.result0, 1.1, rng)])
    assert monitor.latency == {2} and monitor.done == {0: 200, 1: 0}


SMALL_WINDOWS = [{"strobe": 1, "function": n + 1, "register": r // 4, "value": v}
                 for n in range(8) for r, v in (
                     (0x04, 3), (0x18, n + 1 << 16 | n + 1 << 8), (0x20, n << 20 | n << 4),
                     (0x24, 0xfff0), (0x1c, n << 12 | n << 4))]


@pytest.mark.parametrize("kind, unit, misses", [(MEMORY, 1 << 20, 9), (IO, 1 << 12, 9),
                                                (BUS, 1, 2)])
def test_how_long_a_shared_lookup_takes(kind, unit, misses):
    """Two cycles, and one for each port before the last that does not claim an address."""
    dut, took = HostTable(ports=8, shared=True), []

    async def bench(ctx):
        await ctx.tick().repeat(8)
        await configure(dut, SMALL_WINDOWS)(ctx)
        ctx.set(dut.result0.ready, 1)
        for port in range(9):
            ctx.set(dut.lookup0.p, request(kind, (port + (kind == BUS)) * unit))
            ctx.set(dut.lookup0.valid, 1)
            cycles, answer = 0, None
            while answer is None:
                ready, valid, result = (await ctx.tick().sample(
                    dut.lookup0.ready, dut.result0.valid, dut.result0.p))[-3:]
                if ready:
                    ctx.set(dut.lookup0.valid, 0)
                if valid:
                    answer = result.hit, result.port
                    took.append(cycles)
                cycles += 1
            assert answer == ((1, port) if port < 8 else (0, 0))

    simulate(dut, bench)
    assert took == ([2] * 8 if kind == BUS else [*range(2, 10)]) + [misses]


def test_throughput_of_shared_lookups():
    """Of bus numbers one of each in four cycles; whoever does not take a result holds up nobody."""
    rng = random.Random(seed())
    dut = HostTable(ports=8, shared=True)
    monitor = Monitor(dut, 8, (0, 1), shared=True)

    async def both(ctx):
        await ctx.tick().repeat(8)  # until all is cleared
        await configure(dut, [random_update(rng, 8) for _ in range(300)])(ctx)
        start = monitor.now
        await ask(dut.lookup0, monitor.model, 100, rng, kinds=[BUS])(ctx)
        await ctx.tick().repeat(3)
        assert monitor.now - start <= 4 * 100 + 4
        # Now the other one takes nothing, and gets no more than one.
        ctx.set(dut.result1.ready, 0)
        ctx.set(dut.lookup1.valid, 1)
        await ctx.tick().repeat(9)
        assert monitor.done[1] + len(monitor.pending[1]) == 101
        start = monitor.now
        await ask(dut.lookup0, monitor.model, 100, rng, kinds=[BUS])(ctx)
        assert monitor.now - start <= 4 * 100 + 4
        assert len(monitor.pending[1]) == 1

    async def other(ctx):
        ctx.set(dut.result1.ready, 1)
        await ctx.tick().repeat(305)
        await ask(dut.lookup1, monitor.model, 100, rng, kinds=[BUS])(ctx)

    simulate(dut, both, other, background=[monitor.run, take(dut.result0, 1.1, rng)])


def scenario(ports, updates, questions):
    """Answers of a table to ``questions`` after ``updates`` (function, offset, value)."""
    dut, got = HostTable(ports=ports, lookups=1), []

    async def bench(ctx):
        await configure(dut, [{"strobe": 1, "function": f, "register": r // 4, "value": v}
                              for f, r, v in updates])(ctx)
        ctx.set(dut.result0.ready, 1)
        for kind, value in questions:
            await drive_words(dut.lookup0, [request(kind, value)])(ctx)
            result, = await ctx.tick().sample(dut.result0.p).until(dut.result0.valid)
            got.append(result.port if result.hit else None)

    simulate(dut, bench)
    return got


def test_windows_by_hand():
    """Numbers worked out by hand, so that model and table cannot share a mistake."""
    updates = [
        (1, 0x04, 0x3), (1, 0x18, 0x00_05_03_01), (1, 0x1c, 0x0000_2121), (1, 0x30, 0x0001_0001),
        (1, 0x20, 0xe01f_e000), (1, 0x24, 0x0011_ff11), (1, 0x28, 0x10), (1, 0x2c, 0x11),
        (2, 0x04, 0x3), (2, 0x18, 0x00_06_06_01), (2, 0x20, 0xe00f_e000), (2, 0x24, 0x0001_fff1),
        (2, 0x1c, 0x0000_11f1),
    ]
    questions = {
        (MEMORY, 0xdfff_ffff): None, (MEMORY, 0xe000_0000): 0, (MEMORY, 0xe01f_ffff): 0,
        (MEMORY, 0xe020_0000): None, (MEMORY, 0x1_e000_0000): None,
        (MEMORY, 0x10_ff0f_ffff): None, (MEMORY, 0x10_ff10_0000): 0,
        (MEMORY, 0x11_001f_ffff): 0, (MEMORY, 0x11_0020_0000): None, (MEMORY, 0xfff0_0000): None,
        (IO, 0x1_1fff): None, (IO, 0x1_2000): 0, (IO, 0x1_2fff): 0, (IO, 0x1_3000): None,
        (IO, 0x2000): None, (IO, 0xf000): None, (IO, 0x1000): None,
        (BUS, 2): None, (BUS, 3): 0, (BUS, 5): 0, (BUS, 6): 1, (BUS, 7): None, (BUS, 0): None,
    }
    assert scenario(2, updates, questions) == list(questions.values())


def test_windows_after_reset_claim_nothing():
    questions = [(k, v) for k in (MEMORY, IO, BUS) for v in (0, 1, 0xfff, 0xfffff)]
    assert scenario(4, [], questions) == [None] * len(questions)
    # Enabled but never programmed: base 0 and limit 0 are a window of the first granule.
    assert scenario(1, [(1, 0x04, 3)], [(MEMORY, 0xfffff), (IO, 0xfff), (BUS, 0)]) == [0, 0, None]


@pytest.mark.parametrize("enables, memory, io", [(0, None, None), (1, None, 1), (2, 1, None)])
def test_enables_gate_windows_but_not_buses(enables, memory, io):
    updates = [(2, 0x18, 0x00_04_04_01), (2, 0x1c, 0x1111), (2, 0x20, 0xe00f_e000),
               (2, 0x04, enables)]
    assert scenario(2, updates, [(MEMORY, 0xe0000000), (IO, 0x1234), (BUS, 4)]) == [memory, io, 1]


def test_lowest_port_wins():
    updates = [(n, r, v) for n in (2, 4, 5) for r, v in ((0x04, 2), (0x20, 0xe00f_e000),
                                                         (0x18, 0x00_09_07_00))]
    questions = [(MEMORY, 0xe000_1234), (BUS, 8)]
    assert scenario(5, updates, questions) == [1, 1]
    assert scenario(5, [*updates, (2, 0x04, 0), (2, 0x18, 0)], questions) == [3, 3]


# The manager's side.

class Manager:
    """Talks to a table as software would."""

    def __init__(self, dut):
        self.dut, self.block = dut, dut.block

    async def access(self, ctx, address, value=None):
        return await access(ctx, self.dut.bus, address, value)

    async def write(self, ctx, path, value=None, **fields):
        placed = self.block.find(path)
        value = placed.register.pack(**fields) if value is None else value
        assert await self.access(ctx, placed.address, value) == (0, 0)

    async def read(self, ctx, path):
        placed = self.block.find(path)
        value, error = await self.access(ctx, placed.address)
        assert not error
        fields = placed.register.unpack(value)
        return fields["value"] if list(fields) == ["value"] else fields

    async def prepare(self, ctx, c):
        await self.write(ctx, "epoch", c["epoch"])
        await self.write(ctx, "operation_id", c["operation_id"])
        await self.write(ctx, "target", node=c["node"], slot=c["slot"], stream=c["stream"])
        await self.write(ctx, "paths", mask=c["paths"])

    async def commit(self, ctx, c):
        """Give a command; returns its code."""
        await self.prepare(ctx, c)
        await self.write(ctx, "commit", row=c["row"], used=c["used"], generation=c["generation"])
        result = await self.read(ctx, "result")
        assert result["row"] == c["row"]
        assert await self.read(ctx, "result_operation_id") == c["operation_id"]
        return CommitCode(result["code"])

    async def row(self, ctx, n):
        state = await self.read(ctx, f"row[{n}].state")
        return {**state, **await self.read(ctx, f"row[{n}].binding"),
                "operation_id": await self.read(ctx, f"row[{n}].operation_id")}


class Oracle:
    """The commit protocol in plain Python, from the design's sections 4 and 9."""

    def __init__(self, rows, host):
        self.host, self.fence, self.draining = host, 0, 0
        self.rows = [dict(used=0, node=0, slot=0, stream=0, paths=0, generation=0, operation_id=0)
                     for _ in range(rows)]
        self.events = []
        self.stats = dict.fromkeys(("committed", "repeated", "fenced", "refused"), 0)

    def raise_fence(self, epoch):
        if epoch < self.fence:
            self.stats["fenced"] += 1
        self.fence = max(self.fence, epoch)

    def commit(self, c):
        code, did = self._commit(c)
        kind = ("fenced" if code == CommitCode.FENCED else "refused" if code != CommitCode.DONE
                else "committed" if did else "repeated")
        self.stats[kind] += 1
        return code

    def _commit(self, c):
        if c["epoch"] < self.fence:
            return CommitCode.FENCED, False
        if c["row"] >= len(self.rows):
            return CommitCode.BAD_ROW, False
        if c["operation_id"] == 0:
            return CommitCode.BAD_OPERATION, False
        row = self.rows[c["row"]]
        if all(row[k] == c[k] for k in ("operation_id", "generation")):
            return CommitCode.DONE, False
        if c["used"] and (c["node"] in (0, 0xfff) or c["paths"] == 0
                          or (self.host and c["slot"] == 0)):
            return CommitCode.BAD_TARGET, False
        ahead = (c["generation"] - row["generation"]) % 65536
        same_life = row["used"] and ahead == 0
        if row["operation_id"]:
            if ahead >= 32768:
                return CommitCode.STALE, False
            if ahead == 0 and c["used"] and not row["used"]:
                return CommitCode.STALE, False
        keys = ("node", "stream", *(["slot"] if self.host else []))
        if c["used"] and row["used"] and not (same_life and all(c[k] == row[k] for k in keys)):
            return CommitCode.IN_USE, False
        if c["used"] and not row["used"] and self.draining >> c["row"] & 1:
            return CommitCode.DRAINING, False
        change = (RowChange.UPDATED if c["used"] == row["used"]
                  else RowChange.BOUND if c["used"] else RowChange.RELEASED)
        self.events.append((c["row"], change, row["generation"]))
        row.update(used=c["used"], generation=c["generation"], operation_id=c["operation_id"])
        if c["used"]:
            row.update({k: c[k] for k in ("paths", *keys)})
        return CommitCode.DONE, True


class Watch:
    """Records events and counts stat pulses; a row may change with an event only."""

    STATS = ("committed", "repeated", "fenced", "refused")

    def __init__(self, dut):
        self.dut, self.events, self.stats = dut, [], dict.fromkeys(self.STATS, 0)

    async def run(self, ctx):
        dut, before = self.dut, None
        stats = [getattr(dut, f"stat_{name}") for name in self.STATS]
        rows, stride = Value.cast(dut.rows), dut.rows[0].as_value().shape().width
        async for sample in ctx.tick().sample(dut.row_event, rows, *stats):
            event, now, *pulses = sample[-2 - len(stats):]
            if before is not None and now != before:
                assert event.strobe and (now ^ before) >> event.row * stride < 1 << stride
                assert not (now ^ before) & (1 << event.row * stride) - 1
            before = now
            if event.strobe:
                self.events.append((event.row, event.change, event.previous))
            for name, pulse in zip(self.STATS, pulses, strict=True):
                self.stats[name] += pulse


def random_command(rng, oracle, rows, history):
    """A command that is often right, often nearly right, sometimes an old one again."""
    if history and rng.random() < 0.25:
        return dict(rng.choice(history[-6:]))
    row = rng.randrange(rows) if rng.random() < 0.95 else rng.randrange(rows, 64)
    now = oracle.rows[row] if row < rows else oracle.rows[0]
    used = rng.random() < (0.5 if now["used"] else 0.8)
    step = rng.choice((1, 1, 1, 0, 0, -1, 5, 32767, 32768))
    c = {
        "row": row, "used": int(used), "generation": (now["generation"] + step) % 65536,
        "operation_id": rng.choice((0, *[rng.randrange(1, 1 << 32)] * 9)),
        "epoch": max(0, oracle.fence + rng.choice((0, 0, 0, 0, 1, -1))),
        "node": rng.choice((rng.randrange(1, 4095),) * 9 + (0, 4095)),
        "slot": rng.choice((rng.randrange(1, 256),) * 9 + (0,)),
        "stream": rng.randrange(16), "paths": rng.choice((0, *[rng.randrange(1, 65536)] * 9)),
    }
    if now["used"] and used and rng.random() < 0.5:  # new paths for the binding
        c.update(generation=now["generation"], node=now["node"], stream=now["stream"])
        if oracle.host:
            c["slot"] = now["slot"]
    return c


def table(kind, rows):
    return HostTable(ports=rows, lookups=1) if kind == "host" else BoxTable(slots=rows)


@pytest.mark.parametrize("kind, rows", [
    ("host", 1), ("host", 4), ("box", 4), pytest.param("box", 32, marks=pytest.mark.long)])
def test_commits_against_the_oracle(kind, rows):
    rng = random.Random(seed())
    dut, oracle = table(kind, rows), Oracle(rows, kind == "host")
    manager, watch, codes = Manager(dut), Watch(dut), set()

    async def bench(ctx):
        history = []
        for _ in range(250):
            if rng.random() < 0.06:
                epoch = max(0, oracle.fence + rng.choice((1, 2, -1, 0)))
                await manager.write(ctx, "fence_epoch", epoch)
                oracle.raise_fence(epoch)
                assert await manager.read(ctx, "fence_epoch") == oracle.fence
            oracle.draining = rng.getrandbits(rows) & rng.getrandbits(rows)
            ctx.set(dut.draining, oracle.draining)
            c = random_command(rng, oracle, rows, history)
            history.append(c)
            expected = oracle.commit(c)
            assert await manager.commit(ctx, c) == expected
            codes.add(expected)
            n = c["row"] if c["row"] < rows else 0
            row = await manager.row(ctx, n)
            valid = row.pop("valid", 0)
            assert not valid and row == {**oracle.rows[n], **({} if oracle.host
                                                              else {"slot": n + 1})}
        await ctx.tick().repeat(2)

    simulate(dut, bench, background=[watch.run, check_stream(dut.bus.response, "response")])
    assert watch.events == oracle.events and len(oracle.events) > 40
    assert watch.stats == oracle.stats
    assert codes == set(CommitCode) - {CommitCode.NONE}


BIND = dict(row=1, used=1, operation_id=0xa0000001, generation=7, epoch=0, node=0x105, slot=3,
            stream=2, paths=3)


@pytest.mark.parametrize("kind", ["host", "box"])
def test_a_repeated_commit_has_one_event(kind):
    dut = table(kind, 2)
    manager, watch = Manager(dut), Watch(dut)

    async def bench(ctx):
        assert (await manager.read(ctx, "result"))["code"] == CommitCode.NONE.value
        for _ in range(3):
            assert await manager.commit(ctx, BIND) == CommitCode.DONE
        # The same operation in the other row is another command.
        assert await manager.commit(ctx, {**BIND, "row": 0}) == CommitCode.DONE
        release = {**BIND, "operation_id": 5, "used": 0, "node": 0, "paths": 0}
        for _ in range(2):
            assert await manager.commit(ctx, release) == CommitCode.DONE
        # A late copy of the bind cannot bind again.
        assert await manager.commit(ctx, BIND) == CommitCode.STALE
        row = await manager.row(ctx, 1)
        # A released row keeps its last peer.
        assert (row["used"], row["node"], row["paths"], row["operation_id"]) == (0, 0x105, 3, 5)

    simulate(dut, bench, background=[watch.run])
    assert watch.events == [(1, RowChange.BOUND, 0), (0, RowChange.BOUND, 0),
                            (1, RowChange.RELEASED, 7)]
    assert watch.stats == {"committed": 3, "repeated": 3, "fenced": 0, "refused": 1}


@pytest.mark.parametrize("kind", ["host", "box"])
def test_a_draining_row_is_not_bound(kind):
    """But it may be released and updated; and the same command binds it as soon as it may."""
    dut = table(kind, 2)
    manager, watch = Manager(dut), Watch(dut)
    release = {**BIND, "operation_id": 2, "used": 0, "node": 0, "paths": 0}
    again = {**BIND, "operation_id": 3, "generation": 8, "node": 0x106}

    async def bench(ctx):
        ctx.set(dut.draining, 0b01)  # the other row does not matter
        assert await manager.commit(ctx, BIND) == CommitCode.DONE
        ctx.set(dut.draining, 0b10)
        update = {**BIND, "operation_id": 1, "paths": 1}
        assert await manager.commit(ctx, update) == CommitCode.DONE
        assert await manager.commit(ctx, release) == CommitCode.DONE
        before = await manager.row(ctx, 1)
        for _ in range(2):
            assert await manager.commit(ctx, again) == CommitCode.DRAINING
        assert await manager.row(ctx, 1) == before
        # What else is wrong with it comes first.
        assert await manager.commit(ctx, {**again, "generation": 7}) == CommitCode.STALE
        # A repeated release is still done.
        assert await manager.commit(ctx, release) == CommitCode.DONE
        ctx.set(dut.draining, 0)
        assert await manager.commit(ctx, again) == CommitCode.DONE

    simulate(dut, bench, background=[watch.run])
    assert watch.events == [(1, RowChange.BOUND, 0), (1, RowChange.UPDATED, 7),
                            (1, RowChange.RELEASED, 7), (1, RowChange.BOUND, 7)]
    assert watch.stats == {"committed": 4, "repeated": 1, "fenced": 0, "refused": 3}


@pytest.mark.parametrize("late, code", [(2, CommitCode.DRAINING), (3, CommitCode.DONE)])
def test_draining_is_in_time_two_cycles_after_a_release(late, code):
    """The next command comes in the very cycle of ``committed``, the earliest there is."""
    dut = RowCommit(rows=2, with_slot=True)
    codes = []

    async def command(ctx, **fields):
        ctx.set(dut.command.row, 1)
        ctx.set(dut.command.binding, {"node": 5, "slot": 1, "paths": 1, **fields})
        ctx.set(dut.command.strobe, 1)
        for now in range(5):
            if now == late and fields["generation"] == 2:
                ctx.set(dut.draining, 0b10)
            await ctx.tick()
            ctx.set(dut.command.strobe, 0)
        codes.append(CommitCode(ctx.get(dut.code)))
        assert ctx.get(dut.row_event.strobe) == (codes[-1] == CommitCode.DONE)

    async def bench(ctx):
        await command(ctx, used=1, generation=1, operation_id=1)
        await command(ctx, used=0, generation=1, operation_id=2)
        await command(ctx, used=1, generation=2, operation_id=3)

    simulate(dut, bench)
    assert codes == [CommitCode.DONE, CommitCode.DONE, code]


@pytest.mark.parametrize("kind", ["host", "box"])
def test_fence_epoch_refuses_the_past(kind):
    dut = table(kind, 2)
    manager, watch = Manager(dut), Watch(dut)

    async def bench(ctx):
        await manager.write(ctx, "fence_epoch", 0x80000001)
        await manager.write(ctx, "fence_epoch", 0x80000000)  # never falls
        assert await manager.read(ctx, "fence_epoch") == 0x80000001
        for epoch in (0, 0x80000000):
            assert await manager.commit(ctx, {**BIND, "epoch": epoch}) == CommitCode.FENCED
        assert (await manager.row(ctx, 1))["operation_id"] == 0
        assert await manager.commit(ctx, {**BIND, "epoch": 0x80000001}) == CommitCode.DONE
        # Even a repeated command is refused to who is fenced.
        assert await manager.commit(ctx, {**BIND, "epoch": 0x80000000}) == CommitCode.FENCED
        assert await manager.commit(ctx, {**BIND, "epoch": 0xffffffff}) == CommitCode.DONE

    simulate(dut, bench, background=[watch.run])
    assert watch.stats == {"committed": 1, "repeated": 1, "fenced": 4, "refused": 0}


def test_a_row_does_not_change_before_its_commit():
    dut = HostTable(ports=2, lookups=1)
    manager, watch = Manager(dut), Watch(dut)

    async def bench(ctx):
        await manager.commit(ctx, BIND)
        before = await manager.row(ctx, 1)
        await manager.prepare(ctx, {**BIND, "operation_id": 9, "node": 0x222, "paths": 1})
        assert await manager.row(ctx, 1) == before
        assert await manager.read(ctx, "operation_id") == 9

    simulate(dut, bench, background=[watch.run])
    assert len(watch.events) == 1


@pytest.mark.parametrize("kind", [HostTable, BoxTable])
def test_a_binding_needs_a_path_that_there_is(kind):
    dut = kind(paths=2)
    manager = Manager(dut)

    async def bench(ctx):
        assert await manager.commit(ctx, {**BIND, "paths": 0x8004}) == CommitCode.BAD_TARGET
        assert await manager.commit(ctx, {**BIND, "paths": 0x8002}) == CommitCode.DONE
        assert (await manager.row(ctx, 1))["paths"] == 0x8002

    simulate(dut, bench)


@pytest.mark.parametrize("kind", [HostTable, BoxTable])
@pytest.mark.parametrize("streams", [1, 4])
def test_a_binding_needs_a_stream_that_there_is(kind, streams):
    dut = kind(streams=streams)
    manager = Manager(dut)

    async def bench(ctx):
        for absent in (streams, 8, 15):
            command = {**BIND, "stream": absent}
            assert await manager.commit(ctx, command) == CommitCode.BAD_TARGET
        assert await manager.commit(ctx, {**BIND, "stream": streams - 1}) == CommitCode.DONE
        assert (await manager.row(ctx, 1))["stream"] == streams - 1

    simulate(dut, bench)


def test_a_reset_forgets_the_rows():
    again, dut = Signal(), HostTable(ports=2)
    manager = Manager(dut)

    async def bench(ctx):
        before = await manager.row(ctx, 1)
        assert await manager.commit(ctx, BIND) == CommitCode.DONE
        assert await manager.row(ctx, 1) != before
        ctx.set(again, 1)
        await ctx.tick()
        ctx.set(again, 0)
        assert await manager.row(ctx, 1) == before
        old = {**BIND, "generation": (BIND["generation"] - 1) % 65536, "operation_id": 77}
        assert await manager.commit(ctx, old) == CommitCode.DONE

    simulate(ResetInserter(again)(dut), bench)


@pytest.mark.parametrize("kind", ["host", "box"])
def test_unknown_addresses_get_an_error(kind):
    dut = table(kind, 3)
    manager = Manager(dut)
    known = {p.address: p.register for p in dut.block.placed}

    async def bench(ctx):
        for address in (*range(0, 0x30, 2), *range(0x800, 0x8d0, 4), 0xffc, 0x1000, 0x1800, 0xffff):
            if address not in known:
                assert await manager.access(ctx, address) == (0, 1)
            if address not in known or not known[address].writable:
                assert await manager.access(ctx, address, 0xffffffff) == (0, 1)
        assert await manager.commit(ctx, BIND) == CommitCode.DONE
        shape = await manager.read(ctx, "shape")
        assert shape == {"rows": 3, "kind": int(kind == "box")}

    simulate(dut, bench)


@pytest.mark.parametrize("shared", [False, True])
def test_host_rows_and_registers_show_the_windows(shared):
    rng = random.Random(seed())
    dut, model = HostTable(ports=3, shared=shared), Switch(3)
    manager = Manager(dut)

    async def bench(ctx):
        await ctx.tick().repeat(3)  # until all is cleared
        for _ in range(6):
            updates = [random_update(rng, 3) for _ in range(40)]
            await configure(dut, updates)(ctx)
            for u in updates:
                model.update(u["function"], u["register"], u["value"])
            for n, port in enumerate(model.ports):
                row = ctx.get(dut.rows[n])
                assert (row.memory_base, row.memory_limit) == port.memory()
                assert (row.prefetch_base, row.prefetch_limit) == port.prefetchable()
                assert (row.io_base, row.io_limit) == port.io()
                assert (row.secondary, row.subordinate) == port.buses() and row.device == n
            n = rng.randrange(3)
            port = model.ports[n]
            words = [await manager.read(ctx, f"row[{n}].{name}") for name in (
                "memory_base", "memory_limit", "prefetch_base_low", "prefetch_base_high",
                "prefetch_limit_low", "prefetch_limit_high", "io_base", "io_limit")]
            base, limit = port.prefetchable()
            assert words == [*port.memory(), base & 0xffffffff, base >> 32, limit & 0xffffffff,
                             limit >> 32, *port.io()]
            assert await manager.read(ctx, f"row[{n}].bus") == {
                "secondary": port.buses()[0], "subordinate": port.buses()[1], "device": n,
                "io_enable": port.raw[4] & 1, "memory_enable": port.raw[4] >> 1 & 1}

    simulate(dut, bench)


def test_bound_rows_keep_their_windows_and_lookups_ignore_used():
    dut = HostTable(ports=2)
    manager = Manager(dut)

    async def bench(ctx):
        await configure(dut, [{"strobe": 1, "function": 2, "register": r // 4, "value": v}
                              for r, v in ((0x04, 2), (0x20, 0xe00f_e000))])(ctx)
        for used in (0, 1, 0):
            c = {**BIND, "used": used, "operation_id": 10 + used, "generation": 10 + used}
            if used or ctx.get(dut.rows[1].used):
                assert await manager.commit(ctx, {**c, "generation": 11}) == CommitCode.DONE
            assert ctx.get(dut.rows[1].used) == used
            ctx.set(dut.result0.ready, 1)
            await drive_words(dut.lookup0, [request(MEMORY, 0xe000_0000)])(ctx)
            result, = await ctx.tick().sample(dut.result0.p).until(dut.result0.valid)
            assert (result.hit, result.port) == (1, 1)

    simulate(dut, bench)


def test_box_rows_show_the_gpu_in_place():
    dut = BoxTable(slots=3)
    manager = Manager(dut)

    async def bench(ctx):
        for valid in (0b101, 0b010):
            ctx.set(dut.present, valid)
            for n in range(3):
                assert (await manager.row(ctx, n))["valid"] == valid >> n & 1
                row = ctx.get(dut.rows[n])
                assert (row.valid, row.slot) == (valid >> n & 1, n + 1)

    simulate(dut, bench)


def test_register_addresses_are_stable():
    """Software relies on them."""
    for block in (host_block(8), box_block(8)):
        assert [block.address(name) for name in (
            "shape", "fence_epoch", "epoch", "operation_id", "target", "paths", "commit", "result",
            "result_operation_id", "row[0].state", "row[1].binding", "row[2].operation_id")] == [
            0, 4, 8, 12, 16, 20, 24, 28, 32, 0x800, 0x844, 0x888]
    assert host_block(32).address("row[31].io_limit") == 0x800 + 31 * 64 + 11 * 4
    assert "| 3:0 | `code` | read only | - |" in markdown(host_block())
