"""tests.support.pysim and shared simulators: quicker, and the same results."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, _pyrtl, pysim

from dxpu.queue import PacketQueue
from tests.support.pysim import update_only_changes
from tests.support.testbench import (
    Packet, StreamViolation, check_stream, collect_packets, drive_packets, seed, shared, simulate,
)


class Machine(wiring.Component):
    """Logic of both domains with partial updates, a memory, and signed values."""

    i: In(8)
    o: Out(signed(9))
    sums: Out(16)

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=8, depth=4, init=[1, 2, 3, 4])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [write.addr.eq(self.i), write.data.eq(self.i ^ self.sums), read.addr.eq(self.i),
                     write.en.eq(self.i[2]), self.o.eq(read.data - self.i)]
        m.d.sync += self.sums[:8].eq(self.sums[:8] + self.i)
        with m.If(self.i[0]):
            m.d.sync += self.sums[8:].eq(self.o)
        return m


def outputs(values):
    """What a machine says for these inputs, and how often the simulator updated a signal."""
    dut, said, calls = Machine(), [], 0
    update = pysim._PySignalState.update

    def counted(self, value, mask=~0):
        nonlocal calls
        calls += 1
        update(self, value, mask)

    async def process(ctx):
        for value in values:
            ctx.set(dut.i, value)
            *_, o, sums = await ctx.tick().sample(dut.o, dut.sums)
            said.append((o, sums))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pysim._PySignalState, "update", counted)
        sim = Simulator(dut)
        sim.add_clock(1e-6)
        sim.add_testbench(process)
        sim.run()
    return said, calls


def test_only_changes_are_updated_and_results_are_the_same(monkeypatch):
    rng = random.Random(seed())
    values = [rng.choice([0, 0, 0, rng.randrange(256)]) for _ in range(500)]
    quick, few = outputs(values)
    with monkeypatch.context() as patch:
        patch.setattr(_pyrtl._PythonEmitter, "append", PLAIN)
        plain, many = outputs(values)
    assert quick == plain and few < 0.7 * many


def _plain():
    """The library's own function."""
    append = _pyrtl._PythonEmitter.append
    update_only_changes()  # as the tests' configuration has done; a second time is none
    assert _pyrtl._PythonEmitter.append is append and append.only_changes
    return append.library


PLAIN = _plain()


def test_a_shared_component_begins_in_its_reset_state():
    """Whatever another test left in it, one that failed in the middle included."""
    dut = shared(PacketQueue, 32, depth=8)
    assert shared(PacketQueue, 32, depth=8) is dut
    sent = [Packet(bytes([n] * 12)) for n in range(5)]

    async def stop(ctx):
        await ctx.tick().repeat(7)
        raise StreamViolation("stop")

    for _ in range(2):
        got = []
        simulate(dut, drive_packets(dut.i, sent), collect_packets(dut.o, 5, got),
                 background=[check_stream(dut.o)])
        assert got == sent
        with pytest.raises(StreamViolation, match="stop"):
            simulate(dut, drive_packets(dut.i, sent), stop)
