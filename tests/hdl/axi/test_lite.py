"""dxpu.axi.lite: registers by AXI4-Lite are those of the register port."""

import random

import pytest

from dxpu.axi import AxiLiteBridge, AxiResponse
from tests.support.axi import check_axi_lite
from tests.support.testbench import _gap, check_stream, seed, simulate

OKAY, SLVERR = AxiResponse.OKAY.value, AxiResponse.SLVERR.value
#: Registers there are, and one that cannot be written.
SIZE, READ_ONLY = 0x100, 0x20


def registers(dut, accesses, *, rng=None, density=1.0):
    """Background process: the register port's other end. Writes go to ``accesses``, too."""
    words = {}

    async def process(ctx):
        while True:
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
            ctx.set(dut.bus.request.ready, 1)
            request, = await ctx.tick().sample(dut.bus.request.p).until(dut.bus.request.valid)
            ctx.set(dut.bus.request.ready, 0)
            address, write, value = request.address, request.write, request.data
            error = address >= SIZE or (write and address == READ_ONLY)
            accesses.append((address, write, value if write else 0))
            if write and not error:
                words[address] = value
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
            ctx.set(dut.bus.response.p, {
                "data": 0 if write or error else words.get(address, 0), "error": error})
            ctx.set(dut.bus.response.valid, 1)
            await ctx.tick().until(dut.bus.response.ready)
            ctx.set(dut.bus.response.valid, 0)
    return process


def send(valid, ready, words, *, rng=None, density=1.0):
    """Process that offers each of ``words``: signals with their values."""
    async def process(ctx):
        for word in words:
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
            for signal, value in word:
                ctx.set(signal, value)
            ctx.set(valid, 1)
            await ctx.tick().until(ready)
            ctx.set(valid, 0)
    return process


def receive(valid, ready, signals, count, into, *, rng=None, density=1.0):
    """Process that takes ``count`` words."""
    async def process(ctx):
        while len(into) < count:
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
            ctx.set(ready, 1)
            word = await ctx.tick().sample(*signals).until(valid)
            into.append(tuple(int(getattr(x, "value", x)) for x in word))
            ctx.set(ready, 0)
    return process


def start(dut, reads, writes, rng, densities):
    """Processes for lists of reads (address) and writes (address, data, strobes), and what comes
    back for each."""
    axil, aw, w, b, ar, r = dut.axil, *(
        {"rng": rng, "density": density} for density in densities)
    answers, values = [], []
    return answers, values, [
        send(axil.awvalid, axil.awready, [[(axil.awaddr, a)] for a, *_ in writes], **aw),
        send(axil.wvalid, axil.wready,
             [[(axil.wdata, d), (axil.wstrb, s)] for _, d, s in writes], **w),
        receive(axil.bvalid, axil.bready, [axil.bresp], len(writes), answers, **b),
        send(axil.arvalid, axil.arready, [[(axil.araddr, a)] for a in reads], **ar),
        receive(axil.rvalid, axil.rready, [axil.rdata, axil.rresp], len(reads), values, **r)]


def outcome(address, strobes):
    if strobes == 0:
        return OKAY
    return SLVERR if strobes != 15 or address >= SIZE or address & ~3 == READ_ONLY else OKAY


@pytest.mark.parametrize("densities", [
    (1, 1, 1, 1, 1), (0.5,) * 5, (0.1, 1, 1, 1, 1), (1, 0.1, 1, 1, 1), (1, 1, 0.1, 1, 1),
    (1, 1, 1, 1, 0.1)])
def test_random_transactions(densities):
    """Each write has the effect and the response it must have, in order; address or data first, as
    they come; and so has each read, to registers that are not written meanwhile."""
    rng = random.Random(seed())
    dut, accesses = AxiLiteBridge(), []
    writes = [(rng.choice((rng.randrange(SIZE // 2), READ_ONLY, 0x1000)), rng.getrandbits(32),
               rng.choice((15, 15, 15, rng.randrange(16)))) for _ in range(40)]
    reads = [rng.choice((rng.randrange(SIZE // 2, SIZE), 0xfffc)) for _ in range(40)]
    answers, values, processes = start(dut, reads, writes, rng, densities)
    simulate(dut, *processes, background=[
        registers(dut, accesses, rng=rng, density=densities[0]), *check_axi_lite(dut.axil),
        check_stream(dut.bus.request)])
    assert answers == [(outcome(a, s),) for a, _, s in writes]
    assert values == [(0, SLVERR if a >= SIZE else OKAY) for a in reads]
    assert [(a, v) for a, w, v in accesses if w] == [
        (a & ~3, d) for a, d, s in writes if s == 15]
    assert [a for a, w, _ in accesses if not w] == [a & ~3 for a in reads]


def test_what_is_written_is_read():
    dut, accesses, rng = AxiLiteBridge(), [], random.Random(seed())
    words = {4 * n: rng.getrandbits(32) for n in range(16) if 4 * n != READ_ONLY}
    answers, _, first = start(dut, [], [(a, d, 15) for a, d in words.items()], rng, (1,) * 5)
    _, values, second = start(dut, list(words), [], rng, (1,) * 5)

    async def process(ctx):
        for part in first[2:3]:
            await part(ctx)
        await second[4](ctx)

    async def read(ctx):
        await ctx.tick().until(dut.axil.bvalid)
        while len(answers) < len(words):
            await ctx.tick()
        await second[3](ctx)

    simulate(dut, first[0], first[1], process, read, background=[
        registers(dut, accesses), *check_axi_lite(dut.axil)])
    assert values == [(value, OKAY) for value in words.values()]


def test_reads_and_writes_take_turns():
    """However fast one kind comes."""
    dut, accesses, rng = AxiLiteBridge(), [], random.Random(seed())
    _, _, processes = start(dut, [0] * 30, [(4, n, 15) for n in range(30)], rng, (1,) * 5)
    simulate(dut, *processes, background=[registers(dut, accesses)])
    kinds = [write for _, write, _ in accesses]
    assert max(abs(kinds[:n].count(1) - kinds[:n].count(0)) for n in range(61)) <= 1


@pytest.mark.parametrize("stuck", ["b", "r"])
def test_a_response_that_is_not_taken_holds_back_its_kind_only(stuck):
    dut, accesses, rng = AxiLiteBridge(), [], random.Random(seed())
    answers, values, processes = start(dut, [0] * 20, [(4, n, 15) for n in range(20)], rng,
                                       (1,) * 5)
    got = {"b": answers, "r": values}
    index = {"b": 2, "r": 4}
    senders = {"b": processes[:2], "r": [processes[3]]}
    other = "r" if stuck == "b" else "b"
    simulate(dut, *senders[other], processes[index[other]],
             background=[registers(dut, accesses), *senders[stuck]])
    assert len(got[other]) == 20
    assert [w for _, w, _ in accesses].count(stuck == "b") == 1


def test_latency():
    """Of a read: 3 cycles and those of the register port (here 1)."""
    dut, accesses = AxiLiteBridge(), []

    async def process(ctx):
        ctx.set(dut.axil.arvalid, 1)
        await ctx.tick().until(dut.axil.arready)
        ctx.set(dut.axil.arvalid, 0)
        cycles = 0
        while not ctx.get(dut.axil.rvalid):
            await ctx.tick()
            cycles += 1
        assert cycles == 3

    simulate(dut, process, background=[registers(dut, accesses)])
