"""GTKWave save files: signals and names of their values found in the generated Verilog."""

import re
import warnings
from pathlib import Path

from amaranth import *
from amaranth.back import verilog
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu_sim import waves
from dxpu_sim.hdl.statenames import StateNames


class Color(enum.Enum, shape=2):
    RED = 0
    GREEN = 1
    BLUE = 3


class Pair(data.Struct):
    color: Color
    level: 4


class Inner(wiring.Component):
    i: In(Pair)
    o: Out(Color)
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i.color)
        with m.FSM(name="boss"):
            with m.State("Idle"), m.If(self.i.level == 3):
                m.next = "Busy"
            with m.State("Busy"):
                m.d.comb += self.busy.eq(1)
                m.next = "Idle"
        return m


class Outer(wiring.Component):
    i: In(Pair)
    busy: Out(2)

    def elaborate(self, platform):
        m = Module()
        for n in range(2):
            m.submodules[f"inner{n}"] = inner = Inner()
            m.d.comb += [inner.i.eq(self.i), self.busy[n].eq(inner.busy)]
        return m


def generate():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verilog.convert(StateNames(Outer()), name="top", strip_internal_attrs=True)


def test_signals_and_names():
    found = dict(waves.signals(waves.parse(generate())))
    assert found["top.busy"].width == 2 and not found["top.busy"].values
    assert found["top.i"].width == 6
    for n in range(2):
        state = found[f"top.inner{n}.boss_state"]
        assert state.width == 1 and state.values == {0: "Idle", 1: "Busy"}
        assert found[f"top.inner{n}.o"].values == {0: "RED", 1: "GREEN", 3: "BLUE"}
        assert found[f"top.inner{n}.i.color"].values == {0: "RED", 1: "GREEN", 3: "BLUE"}
        assert found[f"top.inner{n}.i.level"].width == 4
    assert not [name for name in found if ".$" in name]


def test_save_file(tmp_path):
    trace, save = tmp_path / "wave.vcd", tmp_path / "wave.gtkw"
    trace.write_text("")
    groups = [waves.Group("All", (r"busy", r"inner0\..*")), waves.Group("None", ("nothing",)),
              waves.Group("States", (r".*_state",), closed=True)]
    shown = waves.save_file(save, trace, generate(), groups, marker_ps=5_000, start_ps=4_000,
                            span_ps=1200 * 1024)
    lines = save.read_text().splitlines()
    assert f'[dumpfile] "{trace}"' in lines and "[timestart] 4000" in lines
    assert any(line.startswith("*-10.000000 5000 ") for line in lines)
    assert "-All" in lines and "-States" in lines and "-None" not in lines
    # Each once, in the first group that names it; a width only where there is one.
    names = [line.split()[-1] for line in lines if re.match(r"(\+\{|top\.)", line)]
    assert names[0] == "top.busy[1:0]" and "top.inner0.boss_state" in names
    assert names.count("top.inner0.boss_state") == 1 and "top.inner1.boss_state" in names
    assert "top.inner1.o[1:0]" not in names
    assert shown == len(names)
    tables = {line.split()[-1] for line in lines if line.startswith("^")}
    texts = {Path(table).read_text() for table in tables}
    assert texts == {"0 Idle\n1 Busy\n", "0 RED\n1 GREEN\n3 BLUE\n"}


def test_two_enums_whose_names_look_alike_get_two_tables(tmp_path):
    text = """module top(a, b);
  (* enum_value_0 = "A+" *)
  input a;
  (* enum_value_0 = "A-" *)
  input b;
endmodule
"""
    save = tmp_path / "w.gtkw"
    assert waves.save_file(save, tmp_path / "w.vcd", text, [waves.Group("g", ("a", "b"))]) == 2
    assert {t.read_text() for t in (tmp_path / "w-enums").iterdir()} == {"0 A+\n", "0 A-\n"}
