"""GTKWave save files: signals and names of their values found in the generated Verilog, and found
by GTKWave itself."""

import enum as plain_enum
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

from tests.support import gtkwave_viewer
import pytest

from amaranth import *
from amaranth.back import verilog
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu_sim.waves import gtkwave, nets
from dxpu_sim.waves.gtkwave import Group, Row
from dxpu_tools.statenames import StateNames


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


class Kind(plain_enum.IntEnum):
    LOW = 2
    HIGH = 9


GROUPS = [
    Group("All", (Row(r"busy"), Row(r"inner0\..*"), Row(r"i\.level", "level above"))),
    Group("None", (Row("nothing"),)),
    Group("States", (Row(r".*_state"),), closed=True),
]


def write(folder, trace, **options):
    """Save file for ``trace`` in ``folder``; returns its path and lines."""
    save = folder / "wave.gtkw"
    options = {"marker_ps": 5_000, "start_ps": 4_000, "span_ps": 7_000} | options
    gtkwave.save_file(save, folder / trace, generate(), GROUPS, names={r"i\.level": Kind},
                      **options)
    return save, save.read_text().splitlines()


def test_signals_and_names():
    found = {net.path: net for net in nets.nets(nets.parse(generate()))}
    signal = {path: net.signal for path, net in found.items()}
    assert signal["busy"].width == 2 and not signal["busy"].values
    assert signal["i"].width == 6
    for n in range(2):
        state = signal[f"inner{n}.boss_state"]
        assert state.width == 1 and state.values == {0: "Idle", 1: "Busy"}
        assert signal[f"inner{n}.o"].values == {0: "RED", 1: "GREEN", 3: "BLUE"}
        assert signal[f"inner{n}.i.color"].values == {0: "RED", 1: "GREEN", 3: "BLUE"}
        assert signal[f"inner{n}.i.level"].width == 4
        assert found[f"inner{n}.i.level"].scopes == ("top", f"inner{n}")
    assert not [path for path in found if ".$" in path]


def test_save_file(tmp_path):
    save, lines = write(tmp_path, "wave.vcd", span_ps=780 * 1024)
    assert f'[dumpfile] "{tmp_path}/wave.vcd"' in lines and f'[savefile] "{save}"' in lines
    assert "[timestart] 4000" in lines
    # 780 pixels for waves, 1024 ps each; GTKWave's zoom is about 200 pixels: -log2(200 * 1024).
    assert any(line.startswith("*-17.643856 5000 ") for line in lines)
    assert "-All" in lines and "-States" in lines and "-None" not in lines
    # A width only where there is one.
    names = [line.split()[-1] for line in lines if re.match(r"(\+|#)\{", line)]
    assert names[0] == "top.busy[1:0]" and "top.inner0.boss_state" in names
    assert "top.inner1.boss_state" in names and "top.inner1.o[1:0]" not in names
    tables = {line.split()[-1] for line in lines if line.startswith("^")}
    texts = {Path(table).read_text() for table in tables}
    assert texts == {"0 Idle\n1 Busy\n", "0 RED\n1 GREEN\n3 BLUE\n", "2 LOW\n9 HIGH\n"}


def test_a_name_with_a_dot_is_escaped_in_vcd_alone(tmp_path):
    for trace, name in (("w.vcd", r"top.inner0.\i.level[3:0]"),
                        ("w.fst", "top.inner0.i.level[3:0]")):
        _, lines = write(tmp_path, trace)
        assert any(line.endswith(" " + name) for line in lines), trace


def test_a_single_bit_with_names_is_a_vector(tmp_path):
    _, lines = write(tmp_path, "w.vcd")
    assert "#{inner0 boss_state} top.inner0.boss_state" in lines


def test_rows_have_names_of_their_own_without_dots(tmp_path):
    text = """module top();
  wire a__b;
  wire \\a.b ;
  wire \\a__payload.b ;
endmodule
"""
    save = tmp_path / "w.gtkw"
    gtkwave.save_file(save, tmp_path / "w.vcd", text, [Group("g", (Row("a.*"),))])
    rows = re.findall(r"^\+\{(.*)\} ", save.read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows)) == 3 and not [row for row in rows if "." in row], rows


def test_patterns_that_show_nothing_are_found():
    assert gtkwave.unmatched(GROUPS, generate()) == ["nothing"]


def test_two_enums_whose_names_look_alike_get_two_tables(tmp_path):
    text = """module top(a, b);
  (* enum_value_0 = "A+" *)
  input a;
  (* enum_value_0 = "A-" *)
  input b;
endmodule
"""
    save = tmp_path / "w.gtkw"
    groups = [Group("g", (Row("a"), Row("b")))]
    assert gtkwave.save_file(save, tmp_path / "w.vcd", text, groups) == 2
    assert {t.read_text() for t in (tmp_path / "w-enums").iterdir()} == {"0 A+\n", "0 A-\n"}


def write_vcd(path):
    """Trace of all signals in the form of Verilator's; each is 1 from 5 ns on, 0 before."""
    everything = list(nets.nets(nets.parse(generate())))
    lines, scope = ["$timescale 1ps $end"], ()
    for n, net in enumerate(everything):
        while scope != net.scopes[:len(scope)]:
            scope = scope[:-1]
            lines.append("$upscope $end")
        for name in net.scopes[len(scope):]:
            lines.append(f"$scope module {name} $end")
        scope = net.scopes
        width = net.signal.width
        bits = f" [{width - 1}:0]" if width > 1 else ""
        lines.append(f"$var wire {width} s{n} {net.signal.name}{bits} $end")
    lines += ["$upscope $end"] * len(scope) + ["$enddefinitions $end"]
    for time, value in ((0, 0), (5_000, 1), (20_000, 1)):
        lines += [f"#{time}", *(f"b{value} s{n}" if net.signal.width > 1 else f"{value}s{n}"
                                for n, net in enumerate(everything))]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", ["vcd", "fst"])
def test_gtkwave_shows_every_row_with_its_names(kind, tmp_path):
    if gtkwave_viewer.missing():
        pytest.skip(gtkwave_viewer.missing())
    made, moved = tmp_path / "made", tmp_path / "moved here"
    made.mkdir()
    write_vcd(made / "wave.vcd")
    if kind == "fst":
        if not shutil.which("vcd2fst"):
            pytest.skip("GTKWave: no vcd2fst")
        subprocess.run(["vcd2fst", "wave.vcd", "wave.fst"], cwd=made, check=True,
                       capture_output=True)
    _, lines = write(made, f"wave.{kind}")
    wanted = [line.partition("}")[0][2:] for line in lines if line[:2] in ("+{", "#{")]
    # All that belongs together may be moved.
    os.rename(made, moved)
    view = gtkwave_viewer.look(moved / "wave.gtkw", tmp_path)
    assert view.dump == str(moved / f"wave.{kind}")
    assert [name for name, _ in view.rows] == wanted
    values = dict(view.rows)
    assert values["inner0 boss_state"] == "Busy" and values["inner0 o"] == "GREEN"
    assert values["inner0 i level"] == "1" and values["busy"] == "1"
    # 7 ns from the begin are in sight, and not much more, and the marker.
    assert view.marker == 5_000 and view.window[0] == 4_000
    assert 11_000 <= view.window[1] <= 13_000
