# amaranth: UnusedElaboratable=no
"""Two parts of a design that are mostly at rest, and what comes out of them, cycle by cycle."""

import os
import sys
from pathlib import Path

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu_sim.run.clock import SimClock

__all__ = ["Computed", "Resting"]


class Worker(wiring.Component):
    """Works on a word for some cycles; large enough for a part.

    ``note`` and ``look`` change one thing alone: a word of a memory, and what is read from there.

    ``echo`` follows ``ask`` within a cycle, and ``level`` follows ``valid``, so two workers hear
    each other within a cycle.
    """

    word: In(32)
    valid: In(1)
    note: In(1)
    look: In(1)
    ask: In(8)
    echo: Out(8)
    level: Out(8)
    result: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.notes = notes = Memory(shape=32, depth=16, init=range(7, 23))
        write, read = notes.write_port(), notes.read_port()
        other = notes.read_port()
        seen = notes.read_port(domain="comb")
        flag = Signal()
        m.d.sync += flag.eq(self.ask[7])
        steps = Array(Signal(32, name=f"step{n}") for n in range(80))
        left = Signal(5)
        m.d.comb += [
            self.level.eq(Cat(left, self.valid, steps[11][:2])),
            self.echo.eq(self.ask ^ (self.ask << 1) ^ steps[3][:8]),
            write.addr.eq(steps[5][:4]), write.data.eq(steps[7] + self.word),
            write.en.eq(left[0] | self.note), read.addr.eq(steps[9][:4]), read.en.eq(left[1]),
            other.addr.eq(self.ask[2:6]), other.en.eq(self.look),
            seen.addr.eq(self.ask[:4]),
        ]
        with m.If(self.valid):
            m.d.sync += [left.eq(self.word[:5]), steps[0].eq(self.word)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
            for n in range(1, len(steps)):
                before, far = steps[n - 1], steps[(n * 7 + 3) % len(steps)]
                m.d.sync += steps[n].eq(
                    Mux(before[n % 32], before + far, (before ^ (far >> 3)) - n))
        m.d.comb += self.result.eq(steps[-1] ^ read.data ^ (seen.data << 4) ^ self.echo
                                    ^ (other.data << 8) ^ (flag << 3))
        return m


class Core(wiring.Component):
    """Gives words to two workers, one of them in another domain; ``digest`` is of all results."""

    digest: Out(64)
    idle: Out(32)

    def elaborate(self, platform):
        m = Module()
        first = Worker()
        second = Worker()
        third = DomainRenamer("other")(Worker())
        m.submodules.first, m.submodules.second, m.submodules.third = first, second, third
        state = Signal(32, init=0x1234_5678)
        m.d.sync += state.eq(Cat(state[31] ^ state[21] ^ state[1] ^ state[0], state[:-1]))
        come = Signal(32)
        m.submodules.over = FFSynchronizer(come, third.word, o_domain="other")
        rare = state[:6] == 0
        with m.If(rare):
            m.d.sync += come.eq(state)
        with m.Else():
            m.d.sync += self.idle.eq(self.idle + 1)
        m.d.comb += [
            first.note.eq(state[10:15] == 3), second.look.eq(state[12:17] == 9),
            first.look.eq(state[13:18] == 7), second.note.eq(rare & state[8]),
            first.word.eq(state), first.valid.eq(rare & state[7]),
            second.word.eq(first.result), second.valid.eq(rare & state[9]),
            # Logic from worker to worker and back, in one cycle.
            first.ask.eq(second.level), second.ask.eq(first.echo),
            third.valid.eq(third.word[3]), third.ask.eq(second.echo),
        ]
        word = first.result + (second.result << 7) + (third.result << 19)
        m.d.sync += self.digest.eq((self.digest.rotate_left(5) ^ word) + second.echo)
        return m


class Computed(wiring.Component):
    """The design with all of it computed at each edge."""

    digest: Out(64)
    idle: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.submodules.other = SimClock("other", period_ps=6000, phase_ps=1000)
        m.submodules.core = core = Core()
        m.d.comb += [self.digest.eq(core.digest), self.idle.eq(core.idle)]
        return m


class Resting(Computed):
    """The design without what is at rest."""

    rests = True


if "cocotb" in sys.modules and "COCOTB_TEST_MODULES" in os.environ:
    import cocotb
    from cocotb.triggers import Timer

    @cocotb.test()
    async def digests(dut):
        lines = []
        for _ in range(2000):
            await Timer(80, "ns")
            lines.append(f"{int(dut.digest.value):016x} {int(dut.idle.value)}")
        Path("digests.txt").write_text("\n".join(lines))
