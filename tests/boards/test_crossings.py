"""dxpu_boards.crossings: every way between clocks is found in a real netlist, and judged right."""

import json

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.cdc import AsyncQueue, EventCrossing
from dxpu_boards import crossings, ecp5
from dxpu_tools.conversion import to_verilog


class Two(wiring.Component):
    """Clocks ``a`` and ``b``, which are ports, and what ``add`` puts between them."""

    i: In(8)
    o: Out(8)

    def __init__(self, add):
        super().__init__()
        self.add = add

    def elaborate(self, platform):
        m = Module()
        sent, received = Signal(8, name="sent"), Signal(8, name="received")
        m.d.a += sent.eq(self.i)
        self.add(m, sent, received)
        m.d.b += self.o.eq(received)
        return m


def find(folder, add, goal="speed"):
    """All crossings, of what the tools make of it."""
    ecp5.synthesize(to_verilog(Two(add), name="top"), folder, goal)
    netlist = crossings.Netlist(
        json.loads((folder / ecp5.REGISTERS).read_text())["modules"]["top"])
    clocks = {netlist.module["netnames"][f"{name}_clk"]["bits"][0]: name for name in "ab"}
    return crossings.find(netlist, clocks)


def kinds(found):
    return {(c.source, c.target, c.kind) for c in found}


def test_nothing_crosses(tmp_path):
    def add(m, sent, received):
        m.d.a += Signal(8).eq(sent + 1)
        m.d.b += received.eq(received + 1)
    assert find(tmp_path, add) == []


@pytest.mark.parametrize("goal", ecp5.GOALS)
def test_synchronisers_and_resets(tmp_path, goal):
    def add(m, sent, received):
        m.submodules.bit = FFSynchronizer(sent[0], received[0], o_domain="b")
        m.domains.c = ClockDomain()
        m.d.comb += ClockSignal("c").eq(ClockSignal("b"))
        m.submodules.reset = ResetSynchronizer(sent[1], domain="c")
        m.d.c += received[1].eq(~received[1])
    found = find(tmp_path, add, goal)
    assert kinds(found) == {("a", "b", "synchroniser"), ("a", "b", "reset")}
    assert next(c.count for c in found if c.kind == "synchroniser") == 1
    assert not crossings.unexplained(found)


@pytest.mark.parametrize("width, depth, memory", [
    (8, 8, "TRELLIS_DPR16X4"), (8, 1024, "DP16KD"), (36, 512, "DP16KD")])
def test_queues_in_all_kinds_of_memory(tmp_path, width, depth, memory):
    def add(m, sent, received):
        m.submodules.queue = queue = AsyncQueue(width, depth=depth, i_domain="a", o_domain="b")
        words = Signal(width)
        m.d.a += words.eq(Cat(sent, words))
        m.d.comb += [queue.i.payload.eq(words), queue.i.valid.eq(1), queue.o.ready.eq(1),
                     received.eq(Cat(queue.o.payload[n::8].xor() for n in range(8)))]
    found = find(tmp_path, add)
    assert {("a", "b", "queue"), ("a", "b", "synchroniser"), ("b", "a", "synchroniser")} <= \
        kinds(found)
    assert not crossings.unexplained(found)
    assert f'"type": "{memory}"' in (tmp_path / ecp5.NETLIST).read_text()


def test_events(tmp_path):
    def add(m, sent, received):
        m.submodules.event = event = EventCrossing(i_domain="a", o_domain="b")
        m.d.comb += [event.i.eq(sent[0]), received[0].eq(event.o)]
    assert kinds(find(tmp_path, add)) == {("a", "b", "synchroniser")}


def test_careless_ways(tmp_path):
    def add(m, sent, received):
        # A plain register; logic; logic before a synchroniser, which glitches; an enable.
        m.d.b += received[0].eq(sent[0])
        m.d.comb += received[1].eq(sent[1] & sent[2])
        m.submodules.late = FFSynchronizer(sent[3] ^ sent[4], received[2], o_domain="b")
        with m.If(sent[5]):
            m.d.b += received[3].eq(received[4])
        m.d.b += received[4].eq(~received[3])
    found = find(tmp_path, add)
    wrong, = crossings.unexplained(found)
    assert (wrong.source, wrong.target, wrong.kind) == ("a", "b", "")
    assert wrong.count >= 6 and "sent" in wrong.example
    assert kinds(found) == {("a", "b", "")}


def test_a_memory_that_is_no_queue_is_one_way_only(tmp_path):
    def add(m, sent, received):
        m.submodules.memory = memory = Memory(shape=8, depth=1024, init=[])
        write, read = memory.write_port(domain="a"), memory.read_port(domain="b")
        m.d.comb += [write.addr.eq(sent), write.data.eq(sent), write.en.eq(1),
                     read.addr.eq(received), read.en.eq(1)]
        m.d.b += received.eq(read.data)
    assert kinds(find(tmp_path, add)) == {("a", "b", "queue")}


def test_unknown_cells_are_an_error():
    module = {"netnames": {}, "cells": {"x": {"type": "DCUA", "connections": {},
                                              "port_directions": {}}}}
    with pytest.raises(crossings.CrossingError, match=r"^the clocks of a DCUA are not known \(x\)"):
        crossings.Netlist(module)
