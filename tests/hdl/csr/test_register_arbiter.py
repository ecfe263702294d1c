"""dxpu.csr.RegisterArbiter: one request at a time, answers to who has asked."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.csr import Block, RegisterArbiter, RegisterFile, RegisterPort, connect_ports, word
from tests.support.testbench import check_stream, collect_words, drive_words, seed, simulate

ROWS = 8
BLOCK = Block("words", tuple(word(f"word{n}", "rw", reset=n) for n in range(4 * ROWS)))


class Shared(wiring.Component):
    """Some who ask, before one register file."""

    def __init__(self, count):
        super().__init__({"bus": In(RegisterPort()).array(count)})
        self._count = count

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = RegisterArbiter(self._count)
        m.submodules.file = file = RegisterFile(BLOCK)
        for outer, inner in zip(self.bus, arbiter.i, strict=True):
            connect_ports(m, wiring.flipped(outer), inner)
        connect_ports(m, arbiter.o, file.bus)
        return m


def exercise(dut, count, density, requests=150):
    """Each port has registers of its own, and asks for those and for some that are not there."""
    rng = random.Random(seed())
    processes, got, expected = [], [], []
    for n in range(count):
        model = {4 * (n * ROWS + k): n * ROWS + k for k in range(ROWS)}
        asked, wanted, came = [], [], []
        for _ in range(requests):
            address = rng.choice([*model, 0x1000 + n])
            write, value = rng.random() < 0.5, rng.getrandbits(32)
            asked.append({"address": address, "write": write, "data": value})
            wanted.append((0 if write else model.get(address, 0), address not in model))
            if write and address in model:
                model[address] = value
        port = dut.bus[n]
        processes += [
            drive_words(port.request, asked, rng=random.Random(rng.random()), density=density),
            collect_words(port.response, requests, came, rng=random.Random(rng.random()),
                          density=density)]
        got.append(came)
        expected.append(wanted)
    simulate(dut, *processes, background=[
        check_stream(port.response, f"response {n}") for n, port in enumerate(dut.bus)])
    for came, wanted in zip(got, expected, strict=True):
        assert [(r.data, r.error) for r in came] == wanted


@pytest.mark.parametrize("density", [1, 0.4])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_go_to_who_has_asked(count, density):
    exercise(Shared(count), count, density)


def test_nobody_waits_for_ever():
    """Of two that never pause, each gets every other turn."""
    dut = Shared(2)
    order = []

    async def ask(ctx):
        for port in dut.bus:
            ctx.set(port.request.valid, 1)
            ctx.set(port.response.ready, 1)
        while len(order) < 20:
            *_, first, second = await ctx.tick().sample(
                dut.bus[0].response.valid, dut.bus[1].response.valid)
            assert not (first and second)
            order.extend([0] * first + [1] * second)

    simulate(dut, ask)
    assert order[:2] in ([0, 1], [1, 0]) and order == order[:2] * 10


def test_arguments():
    with pytest.raises(ValueError, match="count must be a positive integer, not 0"):
        RegisterArbiter(0)
