# amaranth: UnusedElaboratable=no
"""dxpu_sim.run.netlist: a netlist does what the design does; wrong models of cells are found."""

from dataclasses import replace

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu_sim.run import netlist
from dxpu_sim.run.clock import SimClock
from dxpu_sim.run.runner import Design, SimulationFailed, simulate

#: Width, depth, granularity of write enables: every width of a block RAM, and a small memory.
SHAPES = [(1, 16384, None), (2, 8192, None), (4, 4096, None), (9, 2048, None), (18, 1024, 9),
          (36, 512, 9), (36, 512, None), (72, 700, 9), (5, 16, None)]


class Parts(wiring.Component):
    """Memories of all shapes, sums, a product, a counter with reset and enable."""

    i: In(64)
    o: Out(64)

    def elaborate(self, platform):
        m = Module()
        out = []
        for n, (width, depth, granularity) in enumerate(SHAPES):
            init = [k * 0x9E3779B97F4A7C15F39CC0605 >> 7 & (1 << width) - 1 for k in range(depth)]
            m.submodules[f"memory{n}"] = memory = Memory(shape=width, depth=depth, init=init)
            write = memory.write_port(granularity=granularity)
            read = memory.read_port()
            word = Cat(self.i, self.i, self.i)
            # Few words, so that what was written is read: neighbours, and far from each other.
            far = C(0, depth.bit_length() - 5)
            m.d.comb += [
                write.addr.eq(Cat(self.i[n:n + 2], far, self.i[n + 2:n + 4])),
                write.data.eq(word[n:n + width]),
                write.en.eq(word[8 + n:8 + n + len(write.en)]),
                read.addr.eq(Cat(self.i[32 + n:34 + n], far, self.i[34 + n:36 + n])),
                read.en.eq(self.i[20 + n])]
            out.append(Signal(width, name=f"out{n}"))
            m.d.sync += out[-1].eq(read.data)
        count, sum = Signal(40, init=0x12345), Signal(48)
        with m.If(self.i[3]):
            m.d.sync += count.eq(count + self.i[:20])
        m.d.sync += sum.eq(count + Cat(*out)[:48] + self.i[:16] * self.i[40:55])
        bits = Cat(*out, sum)
        m.d.comb += self.o.eq(Cat(bits[n::64].xor() for n in range(64)))
        return m


class Twins(wiring.Component):
    """Two of the same, with the same inputs at random."""

    differ: Out(1)
    changes: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.submodules.first = first = Parts()
        m.submodules.second = second = Parts()
        state = Signal(64, init=0x9E3779B97F4A7C15)
        x = Signal(64)
        y = Signal(64)
        m.d.comb += [x.eq(state ^ state << 13), y.eq(x ^ x >> 7)]
        m.d.sync += state.eq(y ^ y << 17)
        before = Signal(64)
        m.d.comb += [first.i.eq(state), second.i.eq(state)]
        m.d.sync += [
            before.eq(first.o),
            self.differ.eq(self.differ | (first.o != second.o)),
            self.changes.eq(self.changes + (first.o != before)),
        ]
        return m


DESIGN = Design(Twins, netlists=("top.second",))


@pytest.mark.long
@pytest.mark.parametrize("design", [DESIGN, replace(DESIGN, crowded=DESIGN.netlists)],
                         ids=["fast", "small"])
def test_a_netlist_does_what_the_design_does(design):
    simulate(design, "dxpu_sim.run.twins")


@pytest.mark.long
@pytest.mark.parametrize("right, wrong", [
    ("address_a[2] * 4", "address_a[1] * 4"), ("{in_b, in_a} >> 9", "{in_b, in_a} >> 8"),
    ("INITVAL_00[0 +: 18]", "INITVAL_00[2 +: 18]"),
    ("36'(a * b)", "36'(a + b)"), ("assign out_b = WIDTH_B == 36", "assign out_b = 0")])
def test_a_wrong_cell_is_found(monkeypatch, right, wrong):
    text = netlist.cells()
    assert right in text
    monkeypatch.setattr(netlist, "cells", lambda: text.replace(right, wrong))
    with pytest.raises(SimulationFailed, match="never_differ"):
        simulate(DESIGN, "dxpu_sim.run.twins")
