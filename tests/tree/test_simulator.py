"""tests.support.pysim and shared simulators: quicker, and the same results."""

import random
import re

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, _pyrtl, pysim

from dxpu.queue import PacketQueue
from tests.support.pysim import QuickEngine, use_quick_engine
from tests.support.testbench import (
    Packet, StreamViolation, check_stream, collect_packets, drive_packets, seed, shared, simulate,
)


class Machine(wiring.Component):
    """Logic of both domains with partial updates, memories, signed values, a reset, and a clock
    that is made in the design."""

    i: In(8)
    o: Out(signed(9))
    sums: Out(16)
    kept: Out(8)
    slow: Out(4)

    def elaborate(self, platform):
        m = Module()
        m.domains.half = ClockDomain()
        m.submodules.memory = memory = Memory(shape=8, depth=4, init=[1, 2, 3, 4])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        kept = memory.read_port(transparent_for=(write,))
        m.d.comb += [write.addr.eq(self.i), write.data.eq(self.i ^ self.sums), read.addr.eq(self.i),
                     write.en.eq(self.i[2]), self.o.eq(read.data - self.i),
                     kept.addr.eq(self.i[3:]), kept.en.eq(self.i[7]), self.kept.eq(kept.data)]
        m.d.sync += self.sums[:8].eq(self.sums[:8] + self.i)
        with m.If(self.i[0]):
            m.d.sync += self.sums[8:].eq(self.o)
        half = Signal()
        m.d.sync += half.eq(~half)
        m.d.comb += [ClockSignal("half").eq(half), ResetSignal("half").eq(self.i[5:7] == 3)]
        m.d.half += self.slow.eq(self.slow + self.sums[0])
        return ResetInserter(self.i[4:8] == 9)(m)


def outputs(values, engine):
    """What a machine says for these inputs, as :func:`simulate` samples it, and at once."""
    dut, said = Machine(), []
    shown = Cat(dut.o, dut.sums, dut.kept, dut.slow)

    async def drive(ctx):
        for value in values:
            ctx.set(dut.i, value)
            said.append((ctx.get(dut.o), ctx.get(shown)))
            await ctx.tick()

    async def watch(ctx):
        async for *_, word, o in ctx.tick().sample(shown, dut.o):
            said.append((word, o))

    async def changes(ctx):
        async for value in ctx.changed(dut.slow):
            said.append(value)

    sim = Simulator(dut, engine=engine)
    sim.add_clock(1e-6)
    sim.add_testbench(drive)
    sim.add_testbench(watch, background=True)
    sim.add_testbench(changes, background=True)
    sim.run()
    return said


def waveform(path, values, engine):
    dut = Machine()

    async def drive(ctx):
        for value in values:
            ctx.set(dut.i, value)
            await ctx.tick()

    sim = Simulator(dut, engine=engine)
    sim.add_clock(1e-6)
    sim.add_testbench(drive)
    with sim.write_vcd(str(path)):
        sim.run()
    # Changes of one moment are a set in the library.
    moments = re.split("^#", path.read_text().split("$enddefinitions $end")[1], flags=re.M)
    return [sorted(moment.splitlines()) for moment in moments]


def test_results_are_those_of_the_library(monkeypatch, tmp_path):
    rng = random.Random(seed())
    values = [rng.choice([0, 0, 0, rng.randrange(256)]) for _ in range(500)]
    quick = outputs(values, QuickEngine)
    waves = waveform(tmp_path / "quick.vcd", values, QuickEngine)
    with monkeypatch.context() as patch:
        for name, function in zip(("append", "flush"), PLAIN, strict=True):
            patch.setattr(_pyrtl._PythonEmitter, name, function)
        plain = outputs(values, pysim.PySimEngine)
        plain_waves = waveform(tmp_path / "plain.vcd", values, pysim.PySimEngine)
    assert quick == plain and len(plain) > 1000
    assert waves == plain_waves and len(waves) > 1000


def test_what_does_not_change_takes_no_time():
    """A process of a clock runs if something that it reads or drives has changed."""
    dut, runs = Machine(), 0
    engine = Simulator(dut, engine=QuickEngine)._engine
    for process in engine._clocked:
        def counted(run=process.run):
            nonlocal runs
            runs += 1
            run()
        process.run = counted
    some = len(engine._clocked)
    assert some >= 3
    clock = engine.state.slots[engine.state.get_signal(
        engine._design.fragment.domains["sync"].clk)]
    for n in range(200):
        clock.update(1 - n % 2)
        engine.step_design()
    # The memory's ports once or twice; the divider and sums of 0, and the slow one, as they change.
    assert 100 <= runs < 0.6 * 100 * some


def _plain():
    """The library's own functions."""
    append = _pyrtl._PythonEmitter.append
    use_quick_engine()  # as the tests' configuration has done; a second time is none
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
