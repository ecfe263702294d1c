"""dxpu.observe.times: histograms of round trips and stages of several rows, in one memory."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.csr import RegisterFile, RegisterPort, connect_ports
from dxpu.observe import BINS, Times, access_of
from dxpu.proxy.registers import RECEIVE, address_map
from tests.support.mutate import mutant
from tests.support.testbench import access, seed, simulate



class Timed(wiring.Component):
    """Times behind the registers of a proxy."""

    def __init__(self, role, rows, kind=Times):
        blocks = address_map(role, rows=rows, paths=1, peers=1, streams=1, width=64,
                             counters={"a": ""}, observed={}).blocks
        self.files = {name: RegisterFile(blocks[name][1]) for name in ("observe", "stages")}
        self.is_host = role == "host"
        self.times = kind(rows=rows, trips=self.is_host, receive=RECEIVE)
        super().__init__({"observe": In(RegisterPort()), "stages": In(RegisterPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.times = times = self.times
        for name, file in self.files.items():
            m.submodules[name] = file
            connect_ports(m, wiring.flipped(getattr(self, name)), file.bus)
        access_of(m, self.files["stages"], times.of_stages)
        if self.is_host:
            access_of(m, self.files["observe"], times.of_trips)
        return m


async def histogram(ctx, dut, block, row):
    """Bins, sum and longest."""
    file = dut.files[block].block

    async def read(name):
        word, error = await access(ctx, getattr(dut, block), file.address(f"{row}.{name}"))
        assert not error
        return word

    return ([await read(f"bin{n}") for n in range(BINS)],
            await read("sum_high") << 32 | await read("sum_low"), await read("longest"))


def expected(times):
    """What the registers of these times must be."""
    bins = [0] * BINS
    for time in times:
        bins[next((n for n in range(BINS - 1) if time < 2 << n), BINS - 1)] += 1
    return bins, sum(times), max(times, default=0)


def run(role, rows, kind=Times):
    """Random times of all kinds, some at once: each is in its row, and nothing else is."""
    dut, rng = Timed(role, rows, kind), random.Random(seed())
    given = {("observe", f"round_trip[{n}]"): [] for n in range(rows) if role == "host"}
    given |= {("stages", f"{name}[{n}]"): [] for name in ("send", "receive") for n in range(rows)}

    async def process(ctx):
        await ctx.tick().repeat(32 * 4 * 64)
        for _ in range(120):
            row, time = rng.randrange(rows), rng.getrandbits(rng.randrange(1, 21))
            if role == "host" and rng.random() < 0.6:
                given["observe", f"round_trip[{row}]"].append(time)
                ctx.set(dut.times.trip, {"strobe": 1, "slot": row, "time": time})
            for name in ("send", "receive"):
                port = getattr(dut.times, name)
                if not ctx.get(port.valid) and rng.random() < 0.3 + 0.3 * (name == "send"):
                    row, time = rng.randrange(rows), rng.getrandbits(rng.choice((1, 1, 16)))
                    given["stages", f"{name}[{row}]"].append(time)
                    ctx.set(port.payload, {"row": row, "time": time})
                    ctx.set(port.valid, 1)
            for _ in range(4):
                taken = [port for port in (dut.times.send, dut.times.receive)
                         if ctx.get(port.valid) and ctx.get(port.ready)]
                await ctx.tick()
                for port in taken:
                    ctx.set(port.valid, 0)
                if role == "host":
                    ctx.set(dut.times.trip.strobe, 0)
            await ctx.tick().repeat(40)
        for (block, row), times in given.items():
            assert await histogram(ctx, dut, block, row) == expected(times), (block, row)

    simulate(dut, process, deadline=60_000)


@pytest.mark.parametrize("role, rows", [("host", 1), ("host", 3), ("box", 2), ("box", 1)])
def test_each_time_is_in_its_row(role, rows):
    run(role, rows)


def test_mistakes():
    with pytest.raises(ValueError, match="rows must be 1 to 32, not 33"):
        Times(rows=33, trips=True, receive=RECEIVE)


@pytest.mark.parametrize("old, new", [
    ("self.receive.ready.eq(received),", "self.receive.ready.eq(1),"),
    ("memory.i.time.eq(trip.time), self.send.ready.eq(0)", "memory.i.time.eq(trip.time)"),
    ("Cat(passage.row[:bits], Mux(received, first + 1, first))", "passage.row[:bits]"),
    ("access.address >= self._receive", "access.address > self._receive"),
    ("memory.address.eq(access.address[:ROW + bits]),", "memory.address.eq(access.address[:ROW]),"),
], ids=["received are lost", "sent are lost", "one row", "address", "one slot"])
def test_mutants_are_found(old, new):
    with pytest.raises(AssertionError):
        run("host", 3, mutant(Times, (old, new)))
