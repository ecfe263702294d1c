"""dxpu.csr: descriptions, decoder, multiplexer, counters, documents."""

import enum
import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import (
    AddressMap, Block, CounterBank, Field, Register, RegisterFile, RegisterMux, RegisterPort, Rows,
    connect_ports, constants, counter_block, markdown, word,
)
from tests.support.testbench import access, check_stream, collect_words, drive_words, seed, simulate


class Speed(enum.IntEnum):
    SLOW = 0
    FAST = 3


BLOCK = Block("sample", (
    Register("control", (
        Field("enable", 1, "rw", doc="Run."),
        Field("speed", 2, "rw", reset=3, values=Speed, doc="How fast."),
        Field("level", 8, "rw", reset=0x5a, offset=16),
    ), "Control."),
    Register("status", (Field("count", 12, "ro"), Field("id", 4, "const", reset=0xc, offset=28))),
    Register("event", (Field("seen", 4, "w1c"), Field("kick", 4, "pulse", offset=8))),
    Register("epoch", (Field("value", 32, "hw"),), address=0x20),
    Rows("row", 3, (word("low", "rw", reset=7), Register("flag", (Field("on", 1, "ro"),)),
                    word("extra", "rw")), address=0x80),
), "A sample.")


@pytest.mark.parametrize("make, message", [
    (lambda: Field("Bad"), "Field name must be a lower-case identifier, not 'Bad'"),
    (lambda: Field("f", 33), "Field width must be 1 to 32, not 33"),
    (lambda: Field("f", 2, reset=4), "Reset of field f must fit 2 bits, not 4"),
    (lambda: Field("f", 2, "xo"), "'xo' is not a valid Access"),
    (lambda: Register("r", (Field("a", 20), Field("b", 20))), "Field b does not fit"),
    (lambda: Register("r", (Field("a", 4), Field("b", 4, offset=3))), "Field b does not fit"),
    (lambda: Register("r", (Field("a"), Field("a"))), "two fields of one name"),
    (lambda: word("r", "rw", address=2), "Address must be a multiple of 4, not 2"),
    (lambda: Rows("r", 0, (word("a", "rw"),)), "Row count must be 1 or more, not 0"),
    (lambda: Rows("r", 2, (word("a", "rw"), word("b", "rw")), stride=4),
     "Stride of rows r must be at least 8, not 4"),
    (lambda: Register("r", (Field("a", 4, "mem"), Field("b", 4, "ro"))),
     "Register r must be in a memory as a whole or not at all"),
    (lambda: Register("r", (Field("a", 4, "mem"), Field("b", 4, "mem_hw"))),
     "Register r must be in a memory as a whole or not at all"),
    (lambda: Rows("r", 3, (word("a", "mem"),), stride=12),
     "Stride of rows r in a memory must be a power of two, not 12"),
    (lambda: Block("b", (word("x", "mem"),)), "Register x must be in rows to be in a memory"),
    (lambda: Block("b", (word("x", "ro"), Rows("r", 3, (word("a", "mem"),)))),
     "Address of rows r in a memory must be a multiple of 0x10, not 0x4"),
    (lambda: Block("b", (word("x", "rw"), word("y", "rw", address=0))), "overlaps another"),
    (lambda: Block("b", (word("x", "rw"), word("x", "rw"))), "have one name"),
    (lambda: Block("b", (word("x", "rw"),), size=12), "must be a power of two from 4"),
    (lambda: AddressMap("m", {"a": (4, BLOCK)}), "Base of block a must be a multiple of 0x100"),
    (lambda: AddressMap("m", {"a": (0, BLOCK), "b": (0, BLOCK)}), "overlaps another"),
    (lambda: RegisterMux({"a": (4, 8)}), "Range a must be an aligned power of two"),
    (lambda: RegisterMux({"a": (0, 8), "b": (4, 4)}), "Range b overlaps another"),
    (lambda: RegisterMux({"bus": (0, 8)}), "Range name must not be 'bus'"),
    (lambda: RegisterFile(Block("b", (word("bus", "rw"),))), "must not be named 'bus'"),
    (lambda: RegisterFile(Block("b", (Register("r", (Field("a", 1, "hw"), Field("a_w"))),))),
     "Signal a_w of register r would be there twice"),
    (lambda: CounterBank(Block("b", ())), "must have 1 to 2043 events, not 0"),
    (lambda: CounterBank(counter_block("b", {f"e{n}": "" for n in range(2044)})),
     "must have 1 to 2043 events, not 2044"),
])
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("make, message", [
    (lambda: RegisterFile({}), "Description must be a Block, not {}"),
    (lambda: CounterBank(BLOCK), "Description must be made by counter_block"),
])
def test_descriptions_are_checked(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_placement_and_constants():
    assert [(p.path, p.address) for p in BLOCK.placed] == [
        ("control", 0), ("status", 4), ("event", 8), ("epoch", 0x20),
        ("row[0].low", 0x80), ("row[0].flag", 0x84), ("row[0].extra", 0x88),
        ("row[1].low", 0x90), ("row[1].flag", 0x94), ("row[1].extra", 0x98),
        ("row[2].low", 0xa0), ("row[2].flag", 0xa4), ("row[2].extra", 0xa8)]
    assert BLOCK.size == 0x100
    amap = AddressMap("proxy", {"one": (0x400, BLOCK), "two": (0x1000, BLOCK)})
    assert amap.address("two.row[2].flag") == 0x10a4
    assert amap.windows == {"one": (0x400, 0x100), "two": (0x1000, 0x100)}
    with pytest.raises(KeyError):
        amap.address("two.row[3].flag")
    with pytest.raises(KeyError):
        amap.address("three.control")
    c = constants(amap)
    assert c["ONE_CONTROL"] == 0x400 and c["TWO_ROW_FLAG"] == 0x1084
    assert c["ONE_ROW_STRIDE"] == 16 and c["ONE_ROW_COUNT"] == 3
    assert c["ONE_CONTROL_SPEED_SHIFT"] == 1 and c["ONE_CONTROL_SPEED_MASK"] == 6
    assert c["ONE_CONTROL_SPEED_FAST"] == 3
    control = BLOCK.find("control").register
    assert control.pack(enable=1, speed=Speed.FAST, level=0x12) == 0x120007
    assert control.unpack(0x120007) == {"enable": 1, "speed": 3, "level": 0x12}
    assert control.reset == 0x5a0006
    with pytest.raises(ValueError, match="Field speed must fit 2 bits, not 4"):
        control.pack(speed=4)
    with pytest.raises(ValueError, match="has no field other"):
        control.pack(other=4)


def test_markdown_names_everything():
    page = markdown(AddressMap("proxy", {"two": (0x1000, BLOCK)}, "All registers."))
    for text in ("# proxy", "## two", "| `0x1000` | `control` | Control. |",
                 "| `0x1084 + 0x10 n` | `row[n].flag` | - |",
                 "| 2:1 | `speed` | read, write | `0x3` | How fast. 0 SLOW, 3 FAST |",
                 "| 31:28 | `id` | constant | `0xc` | - |",
                 "Rows `row[n]`: n from 0 to 2."):
        assert text in page
    assert page.endswith("\n") and not page.endswith("\n\n")


def test_access_kinds():
    dut = RegisterFile(BLOCK)

    async def bench(ctx):
        bus, at = dut.bus, BLOCK.address
        assert await access(ctx, bus, at("control")) == (0x5a0006, 0)
        assert await access(ctx, bus, at("control"), 0xffffffff) == (0, 0)
        assert await access(ctx, bus, at("control")) == (0x00ff0007, 0)
        assert ctx.get(dut.control.enable) == 1 and ctx.get(dut.control.level) == 0xff
        ctx.set(dut.status.count, 0x123)
        assert await access(ctx, bus, at("status")) == (0xc0000123, 0)
        assert await access(ctx, bus, at("status"), 5) == (0, 1)
        assert await access(ctx, bus, at("status")) == (0xc0000123, 0)
        # Sticky bits.
        ctx.set(dut.event.seen_set, 5)
        await ctx.tick()
        ctx.set(dut.event.seen_set, 0)
        assert await access(ctx, bus, at("event")) == (5, 0)
        assert await access(ctx, bus, at("event"), 0x4) == (0, 0)
        assert await access(ctx, bus, at("event")) == (1, 0)
        ctx.set(dut.event.seen_set, 1)  # setting wins
        assert await access(ctx, bus, at("event"), 0xf) == (0, 0)
        ctx.set(dut.event.seen_set, 0)
        assert await access(ctx, bus, at("event")) == (1, 0)
        # Hardware-held.
        ctx.set(dut.epoch.value, 0xdeadbeef)
        assert await access(ctx, bus, at("epoch")) == (0xdeadbeef, 0)
        # Rows are separate.
        for n in range(3):
            assert await access(ctx, bus, at(f"row[{n}].low")) == (7, 0)
            assert await access(ctx, bus, at(f"row[{n}].low"), 0x1000 + n) == (0, 0)
            assert await access(ctx, bus, at(f"row[{n}].extra"), 0x2000 + n) == (0, 0)
        for n in range(3):
            ctx.set(dut.row[n].flag.on, n == 1)
        for n in range(3):
            assert await access(ctx, bus, at(f"row[{n}].low")) == (0x1000 + n, 0)
            assert await access(ctx, bus, at(f"row[{n}].extra")) == (0x2000 + n, 0)
            assert await access(ctx, bus, at(f"row[{n}].flag")) == (n == 1, 0)
            assert ctx.get(dut.row[n].extra.value) == 0x2000 + n

    simulate(dut, bench, background=[check_stream(dut.bus.response, "response")])


def test_registers_in_a_memory():
    """They are asked for by address, cannot be written, and have neighbours of other kinds."""
    block = Block("b", (word("x", "rw"), Rows("row", 3, (
        word("kept", "rw"), word("there", "mem"), word("also", "mem", address=12)), address=0x40)))
    dut, contents = RegisterFile(block), {}

    async def memory(ctx):
        async for *_, place in ctx.changed(dut.mem_address):
            ctx.set(dut.mem_read_data, contents.get(place, 0xdead_beef))

    async def bench(ctx):
        for n in range(3):
            for name in ("there", "also"):
                contents[block.address(f"row[{n}].{name}")] = 100 * n + len(name)
            assert await access(ctx, dut.bus, block.address(f"row[{n}].kept"), n + 7) == (0, 0)
        for n in range(3):
            assert await access(ctx, dut.bus, block.address(f"row[{n}].there")) == (100 * n + 5, 0)
            assert await access(ctx, dut.bus, block.address(f"row[{n}].also")) == (100 * n + 4, 0)
            assert await access(ctx, dut.bus, block.address(f"row[{n}].kept")) == (n + 7, 0)
            assert await access(ctx, dut.bus, block.address(f"row[{n}].also"), 1) == (0, 1)
        for address in (0x48, 0x4d, 0x74, 0x7c, 0x84):  # between, unaligned, past the last row
            assert (await access(ctx, dut.bus, address)) == (0, 1)

    simulate(dut, bench, background=[memory])


def test_registers_in_a_memory_that_takes_its_time():
    """Each is asked for until the memory is done; some are written; the others refuse that."""
    block = Block("b", (word("x", "rw"), Rows("row", 4, (
        word("there", "mem_hw"), word("also", "mem"), word("kept", "rw")), address=0x40)))
    rng = random.Random(seed())
    dut, contents, asked = RegisterFile(block), {}, []

    async def memory(ctx):
        ctx.set(dut.mem_done, 0)
        while True:
            await ctx.tick().until(dut.mem_request)
            await ctx.tick().repeat(rng.randrange(1, 6))
            place, puts, value = (ctx.get(s) for s in (
                dut.mem_address, dut.mem_write, dut.mem_write_data))
            asked.append((place, puts))
            if puts:
                contents[place] = value
            ctx.set(dut.mem_read_data, contents.get(place, 0))
            ctx.set(dut.mem_done, 1)
            await ctx.tick()
            ctx.set(dut.mem_done, 0)
            ctx.set(dut.mem_read_data, 0xdead_beef)

    async def bench(ctx):
        ctx.set(dut.mem_done, 0)
        expected = []
        for _ in range(60):
            place = block.address(f"row[{rng.randrange(4)}].{rng.choice(['there', 'also'])}")
            if rng.randrange(2):
                writable = block.placed[1].address % 16 == place % 16
                value = rng.getrandbits(32)
                before = dict(contents)
                assert await access(ctx, dut.bus, place, value) == (0, not writable)
                assert contents == (before | {place: value} if writable else before)
                expected += [(place, 1)] * writable
            else:
                assert await access(ctx, dut.bus, place) == (contents.get(place, 0), 0)
                expected += [(place, 0)]
            assert await access(ctx, dut.bus, block.address("x"), 5) == (0, 0)
            assert await access(ctx, dut.bus, block.address("row[2].kept")) == (0, 0)
        assert asked == expected and len({p for p, _ in asked}) > 4

    simulate(dut, bench, background=[memory, check_stream(dut.bus.response, "response")])


def test_unknown_addresses_answer_with_error_and_change_nothing():
    dut = RegisterFile(BLOCK)
    known = {p.address for p in BLOCK.placed}
    writable = {p.address for p in BLOCK.placed if p.register.writable}

    async def bench(ctx):
        for address in [*range(0x104), 0x8000, 0x8080, 0xffff]:
            if address not in known:
                assert await access(ctx, dut.bus, address) == (0, 1)
            if address not in writable:
                assert await access(ctx, dut.bus, address, 0xffffffff) == (0, 1)
        assert await access(ctx, dut.bus, BLOCK.address("control")) == (0x5a0006, 0)
        assert await access(ctx, dut.bus, BLOCK.address("row[2].low")) == (7, 0)

    simulate(dut, bench)


def test_written_and_pulses_last_one_cycle():
    dut = RegisterFile(BLOCK)
    seen = []

    async def watch(ctx):
        async for *_, kick, event, epoch, value in ctx.tick().sample(
                dut.event.kick, dut.event.written, dut.epoch.written, dut.epoch.value_w):
            if kick or event or epoch:
                seen.append((kick, event, epoch and value))

    async def bench(ctx):
        await access(ctx, dut.bus, BLOCK.address("event"), 0xa00)
        await access(ctx, dut.bus, BLOCK.address("epoch"), 77)
        await access(ctx, dut.bus, BLOCK.address("event"))
        await access(ctx, dut.bus, BLOCK.address("event"), 0)
        await ctx.tick().repeat(5)

    simulate(dut, bench, background=[watch])
    assert seen == [(0xa, 1, 0), (0, 0, 77), (0, 1, 0)]


def test_stall_holds_requests_back():
    dut = RegisterFile(BLOCK)

    async def bench(ctx):
        ctx.set(dut.stall, 1)
        ctx.set(dut.bus.request.valid, 1)
        ctx.set(dut.bus.response.ready, 1)
        for _ in range(10):
            *_, ready, valid = await ctx.tick().sample(dut.bus.request.ready,
                                                       dut.bus.response.valid)
            assert not ready and not valid
        ctx.set(dut.stall, 0)
        assert await access(ctx, dut.bus, 0) == (0x5a0006, 0)

    simulate(dut, bench)


class Tree(wiring.Component):
    """Two register files and a bank of counters behind a multiplexer."""

    bus: In(RegisterPort())
    AMAP = AddressMap("tree", {
        "a": (0x100, BLOCK), "b": (0x8000, BLOCK),
        "stat": (0x400, counter_block("stat", {"x": "", "y": "", "z": ""})),
    })

    def elaborate(self, platform):
        m = Module()
        m.submodules.mux = mux = RegisterMux(self.AMAP.windows)
        connect_ports(m, wiring.flipped(self.bus), mux.bus)
        for name, (_, block) in self.AMAP.blocks.items():
            part = (CounterBank if name == "stat" else RegisterFile)(block)
            m.submodules[name] = part
            connect_ports(m, getattr(mux, name), part.bus)
            if name == "stat":
                m.d.comb += part.pulse.y.eq(1)
        return m


@pytest.mark.parametrize("density", [1, 0.4])
def test_multiplexer_against_a_memory(density):
    rng = random.Random(seed())
    dut, amap = Tree(), Tree.AMAP
    paths = [f"{b}.{r}" for b in "ab" for r in ("row[0].low", "row[2].extra", "row[1].low")]
    model = {amap.address(p): 7 if p.endswith("low") else 0 for p in paths}
    requests, expected = [], []
    for _ in range(300):
        address = rng.choice([*model, *model, rng.randrange(0x10000)])
        write, value = rng.random() < 0.4, rng.getrandbits(32)
        requests.append({"address": address, "write": write, "data": value})
        if address in model:
            expected.append((0 if write else model[address], 0))
            if write:
                model[address] = value
        else:
            placed = {base + p.address: p.register for base, block in amap.blocks.values()
                      for p in block.placed}
            if address in placed:  # another register: not of interest here
                requests.pop()
            else:
                expected.append((0, 1))
    got = []
    simulate(dut, drive_words(dut.bus.request, requests, rng=rng, density=density),
             collect_words(dut.bus.response, len(requests), got, rng=rng, density=density),
             background=[check_stream(dut.bus.response, "response")])
    assert [(r.data, r.error) for r in got] == expected


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40])
def test_counters_count_every_pulse(count):
    rng = random.Random(seed())
    block = counter_block("stat", {f"e{n}": f"Event {n}." for n in range(count)})
    dut = CounterBank(block)
    totals = [0] * count
    rates = [rng.choice([0, 0.01, 0.5, 1]) for _ in range(count)]
    bound = 2 * max(count, 8) + 9

    async def pulses(ctx):
        for _ in range(400):
            for n in range(count):
                on = rng.random() < rates[n]
                ctx.set(getattr(dut.pulse, f"e{n}"), on)
                totals[n] += on
            await ctx.tick()
        for n in range(count):
            ctx.set(getattr(dut.pulse, f"e{n}"), 0)

    async def final(ctx):
        await pulses(ctx)
        # The longest walk is the one that reads slow down, so keep reading meanwhile.
        for _ in range(bound // 4 + 1):
            await access(ctx, dut.bus, 0)
        for n in range(count):
            assert await access(ctx, dut.bus, 4 * n) == (totals[n], 0)
        for address in (4 * count, 4 * count + 4, 0x8000, 0xfffc, 1):
            assert await access(ctx, dut.bus, address) == (0, 1)
        assert await access(ctx, dut.bus, 0, 1) == (0, 1)
        assert await access(ctx, dut.bus, 0) == (totals[0], 0)

    simulate(dut, final, background=[check_stream(dut.bus.response, "response")])


def test_counters_while_they_are_read():
    dut = CounterBank(counter_block("stat", dict.fromkeys(("a", "b"), "")))
    now = 0

    async def count(ctx):
        nonlocal now
        ctx.set(dut.pulse.b, 1)
        async for _ in ctx.tick():
            now += 1

    async def bench(ctx):
        last = 0
        for _ in range(60):
            value, error = await access(ctx, dut.bus, 4)
            assert not error and last <= value <= now and now - value <= 2 * 8 + 9 + 4
            last = value
        assert last > 150
        assert await access(ctx, dut.bus, 0) == (0, 0)

    simulate(dut, bench, background=[count])


def test_counters_of_events_in_each_cycle_while_they_are_read():
    """As many as a proxy has: an accumulator has no bit too few for the longest round."""
    count, cycles = 96, 500
    dut = CounterBank(counter_block("stat", {f"e{n}": "" for n in range(count)}))

    async def pulses(ctx):
        for on, ticks in ((1, cycles), (0, 4 * count)):
            for n in range(count):
                ctx.set(getattr(dut.pulse, f"e{n}"), on)
            await ctx.tick().repeat(ticks)

    async def bench(ctx):
        for n in range((cycles + 3 * count) // 10):
            await access(ctx, dut.bus, 4 * (n % count))
        await ctx.tick().repeat(count)
        for n in range(count):
            assert await access(ctx, dut.bus, 4 * n) == (cycles, 0)

    simulate(dut, bench, pulses)


@pytest.mark.parametrize("saturate", [False, True])
def test_counters_at_the_top(saturate):
    dut = CounterBank(counter_block("stat", {"a": "", "b": ""}), saturate=saturate)
    m = Module()
    m.submodules.dut = dut
    top = 0xffff_ffff

    async def bench(ctx):
        await access(ctx, dut.bus, 0)  # the first walk is over
        totals = dut._totals
        ctx.set(totals.data[0], top - 3)
        ctx.set(dut.pulse.a, 1)
        await ctx.tick().repeat(10)
        ctx.set(dut.pulse.a, 0)
        await ctx.tick().repeat(24)
        value, _ = await access(ctx, dut.bus, 0)
        assert value == (top if saturate else 6)

    simulate(m, bench)


def test_reset_clears_the_counters():
    dut = CounterBank(counter_block("stat", {f"e{n}": "" for n in range(8)}))
    m = Module()
    reset = Signal()
    m.submodules.dut = ResetInserter(reset)(dut)

    async def bench(ctx):
        for n in range(8):
            ctx.set(getattr(dut.pulse, f"e{n}"), 1)
        await ctx.tick().repeat(50)
        for n in range(8):
            ctx.set(getattr(dut.pulse, f"e{n}"), 0)
        await ctx.tick().repeat(30)
        assert await access(ctx, dut.bus, 28) == (50, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        for n in (7, *range(8)):
            assert await access(ctx, dut.bus, 4 * n) == (0, 0)

    simulate(m, bench)


def test_port_signature():
    port = Out(RegisterPort()).signature
    assert port == RegisterPort() and port != object()


def test_what_is_write_only_reads_as_zero():
    """The hardware gets it, with its strobe, and nobody else."""
    dut = RegisterFile(Block("sample", (
        Register("secret", (Field("low", 8, "wo"), Field("high", 8, "wo"),
                            Field("there", 1, "ro"))),)))

    async def bench(ctx):
        ctx.set(dut.secret.there, 1)
        ctx.set(dut.bus.response.ready, 0)
        request = dut.bus.request
        ctx.set(request.payload, {"address": 0, "write": 1, "data": 0xFFFF_1234})
        ctx.set(request.valid, 1)
        await ctx.tick().until(request.ready)
        ctx.set(request.valid, 0)
        await ctx.tick().until(dut.secret.written)
        assert (ctx.get(dut.secret.low_w), ctx.get(dut.secret.high_w)) == (0x34, 0x12)
        ctx.set(dut.bus.response.ready, 1)
        await ctx.tick().until(dut.bus.response.valid)
        data, error = await access(ctx, dut.bus, 0)
        assert (data, error) == (1 << 16, 0)

    simulate(dut, bench)
    assert "write only, reads 0" in markdown(dut.block)
