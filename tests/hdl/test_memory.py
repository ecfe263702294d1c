"""dxpu.memory: a memory whose ports never meet has no bypass, and the claim is checked."""

import pytest
from amaranth import *
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.arq.replay import ReplayMemory
from dxpu.memory import CHECKED, DisjointMemory
from dxpu.queue import PacketQueue
from tests.support.formal import ProofFailed, prove
from tests.support.testbench import simulate


class Ports(wiring.Component):
    """One write port, one read port."""

    def __init__(self, kind=DisjointMemory):
        super().__init__({"write_enable": In(1), "read_enable": In(1), "write": In(2),
                          "read": In(2), "data": In(4), "o": Out(4)})
        self._kind = kind

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = self._kind(shape=4, depth=4, init=[])
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(self.write_enable), write.addr.eq(self.write), write.data.eq(self.data),
            read.en.eq(self.read_enable), read.addr.eq(self.read), self.o.eq(read.data),
        ]
        return m


def meet(write, read, enable):
    dut = Ports()

    async def process(ctx):
        ctx.set(dut.write_enable, 1)
        ctx.set(dut.write, write)
        ctx.set(dut.data, 9)
        ctx.set(dut.read_enable, enable)
        ctx.set(dut.read, read)
        await ctx.tick().repeat(2)

    simulate(dut, process)


def test_ports_that_meet_are_found_by_simulations():
    meet(1, 2, 1)
    meet(1, 1, 0)
    with pytest.raises(AssertionError, match="a word is read while it is written"):
        meet(1, 1, 1)


def test_and_by_proofs():
    with pytest.raises(ProofFailed):
        prove(Ports(), depth=3, claims=True)


def test_synthesis_is_told_and_gets_no_assertion():
    text = rtlil.convert(Ports(), name="top")
    assert "attribute \\no_rw_check 1" in text and "$check" not in text
    assert "$check" in rtlil.convert(Ports(), name="top", platform=CHECKED)
    assert "no_rw_check" not in rtlil.convert(Ports(Memory), name="top")


def test_what_is_read_must_be_undefined_when_ports_meet():
    memory = DisjointMemory(shape=4, depth=4, init=[])
    write = memory.write_port()
    for options in ({"domain": "comb"}, {"transparent_for": (write,)}):
        with pytest.raises(ValueError, match="must be synchronous and not transparent"):
            memory.read_port(**options)


@pytest.mark.parametrize("overflow", ["wait", "drop", "cut"])
def test_a_packet_queue_never_reads_what_it_writes(overflow):
    """Whatever comes: four beats, and the pointers go round more than twice."""
    prove(PacketQueue(32, depth=4, overflow=overflow), depth=14, claims=True)


class Broken(PacketQueue):
    """Reads one beat too early."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        memory = m.submodules.memory
        m.d.comb += memory.read_ports[0].en.eq(1)
        return m


def test_a_queue_that_reads_early_is_found():
    with pytest.raises(ProofFailed):
        prove(Broken(32, depth=4), depth=14, claims=True)


def test_memories_of_the_fabric_are_disjoint_where_they_are_block_ram():
    """The attribute is there; that they never meet is part of their contracts."""
    assert "no_rw_check" in rtlil.convert(ReplayMemory(64, cells=8, cell=4), name="top")
