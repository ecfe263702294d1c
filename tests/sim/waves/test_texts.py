"""Texts beside the signals of a wave, in VCD and FST, and as GTKWave shows them."""

import random
import re
import shutil
import subprocess

from tests.support import gtkwave_viewer
import pytest

from dxpu_sim.waves import fst, gtkwave, vcd
from dxpu_sim.waves.gtkwave import Group, Row
from dxpu_sim.waves.texts import Texts
from dxpu_tools.errors import UserError

VERILOG = """module top(clk, a);
  input clk;
  input [7:0] a;
endmodule
"""
#: Steps of the trace, in ns: every 4 ns from 100 ns on.
FIRST, LAST = 100, 900
TEXTS = [
    Texts("host_in", "host in", [(50, "CfgRd0 05:00.0 +004 tag 18"), (200, "MRd 4 B @0xf000_0060"),
                                 (204, ""), (500, "tag \\3 'é'"), (950, "too late")]),
    Texts("silent", "silent"),
    Texts("late", "a name", [(300, "x" * 300), (LAST, "end")]),
]
#: What is seen of them.
SEEN = {"host_in": [(100, TEXTS[0].changes[0][1]), (200, "MRd 4 B @0xf000_0060"), (204, ""),
                    (500, "tag \\3 'é'")],
        "silent": [(100, "")], "late": [(100, ""), (300, "x" * 300), (900, "end")]}


def write_vcd(path):
    """A trace in which signals are alike, of all widths, and some never change."""
    rng = random.Random(1)
    names = [f"s{n}" for n in range(40)]
    lines = ["$timescale 1ps $end", "$scope module top $end", "$var wire 1 ! clk $end",
             '$var wire 8 " a [7:0] $end']
    lines += [f"$var wire {1 + n % 9} {name} {name} $end" for n, name in enumerate(names)]
    lines += ["$upscope $end", "$enddefinitions $end"]
    for time in range(FIRST, LAST + 4, 4):
        lines += [f"#{time}000", f"{time // 4 % 2}!", f'b{time // 4 % 256:b} "']
        new = {}
        for n, name in enumerate(names):
            if n >= 30:  # of the same width, and equal
                new[n] = new.get(n - 9)
            elif time == FIRST or n % 4 < 3 and rng.random() < 0.3:
                new[n] = 1 if n % 4 == 1 else rng.getrandbits(1 + n % 9)
            if (value := new.get(n)) is not None:
                lines.append(f"b{value:b} {name}" if n % 9 else f"{value & 1}{name}")
    path.write_text("\n".join(lines) + "\n")


def plain(text):
    """A text without escapes."""
    return re.sub(rb"\\([0-7]{3}|.)", lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else m[1],
                  text.encode()).decode()


def changes(lines):
    """Changes of each signal of a VCD file, with their times in ps."""
    ids, time, found, scopes = {}, 0, {}, []
    for line in lines:
        words = line.split()
        if words[:1] == ["$scope"]:
            scopes.append(words[2])
        elif words[:1] == ["$upscope"]:
            scopes.pop()
        elif words[:1] == ["$var"]:
            ids.setdefault(words[3], []).append(".".join([*scopes, words[4]]))
        elif line.startswith("#"):
            time = int(line[1:])
        elif match := re.fullmatch(r"(?:b([01]+) |s(\S*) |([01]))(\S+)", line.strip("\n")):
            bits, text, bit, name = match.groups()
            for one in ids[name]:
                value = int(bits or bit, 2) if text is None else plain(text)
                seen = found.setdefault(one, [])
                if not seen or seen[-1][1] != value:
                    seen.append((time, value))
    return found


def check(before, after):
    """The signals are as before, and the texts are there."""
    texts = {name: after.pop(f"text.{name}") for name in SEEN}
    assert after == before and len(before) == 42
    assert texts == {name: [(1000 * time, text) for time, text in seen]
                     for name, seen in SEEN.items()}


def test_vcd(tmp_path):
    source, target = tmp_path / "a.vcd", tmp_path / "b.vcd"
    write_vcd(source)
    vcd.add_texts(source, target, TEXTS)
    check(changes(source.read_text().splitlines()), changes(target.read_text().splitlines()))
    # A time is there once.
    times = [int(line[1:]) for line in target.read_text().splitlines() if line[0] == "#"]
    assert times == sorted(set(times))


def as_fst(source, target):
    if not shutil.which("vcd2fst"):
        pytest.skip("GTKWave: no vcd2fst")
    subprocess.run(["vcd2fst", source, target], check=True, capture_output=True)


def of_fst(path):
    run = subprocess.run(["fst2vcd", path], check=True, capture_output=True)
    return changes(run.stdout.decode().splitlines())


def test_fst(tmp_path):
    source, made, target = (tmp_path / name for name in ("a.vcd", "a.fst", "b.fst"))
    write_vcd(source)
    as_fst(source, made)
    fst.add_texts(made, target, TEXTS)
    check(of_fst(made), of_fst(target))
    # Texts can be added to a wave that has texts.
    fst.add_texts(target, made, [Texts("more", "more", [(400, "again")])])
    after = of_fst(made)
    assert after.pop("text.more") == [(100_000, ""), (400_000, "again")]
    assert after == of_fst(target)


def test_a_text_between_two_steps_begins_at_the_next_one_in_fst(tmp_path):
    source, made, target = (tmp_path / name for name in ("a.vcd", "a.fst", "b.fst"))
    write_vcd(source)
    as_fst(source, made)
    fst.add_texts(made, target, [Texts("t", "t", [(201, "first"), (203, "second")])])
    assert of_fst(target)["text.t"] == [(100_000, ""), (204_000, "second")]


@pytest.mark.parametrize("add", [fst.add_texts, vcd.add_texts])
def test_other_files_are_refused(add, tmp_path):
    (tmp_path / "a").write_bytes(b"\x01 no wave\n" * 5)
    with pytest.raises(UserError, match="no wave in the (FST|VCD) format"):
        add(tmp_path / "a", tmp_path / "b", TEXTS)


@pytest.mark.parametrize("kind", ["vcd", "fst"])
def test_gtkwave_shows_texts_and_markers(kind, tmp_path):
    if gtkwave_viewer.missing():
        pytest.skip(gtkwave_viewer.missing())
    write_vcd(tmp_path / "a.vcd")
    if kind == "fst":
        as_fst(tmp_path / "a.vcd", tmp_path / "a.fst")
    {"vcd": vcd, "fst": fst}[kind].add_texts(tmp_path / f"a.{kind}", tmp_path / f"w.{kind}", TEXTS)
    save = tmp_path / "w.gtkw"
    shown = gtkwave.save_file(
        save, tmp_path / f"w.{kind}", VERILOG, [Group("Signals", (Row("a"), Row("clk")))],
        texts={"Ports": TEXTS[:2], "More": TEXTS[2:]}, start_ps=100_000, span_ps=800_000,
        markers=[(200_000, "bind"), (300_000, "fault")])
    assert shown == 5
    assert "[markername] Bfault" in save.read_text().splitlines()
    view = gtkwave_viewer.look(save, tmp_path, at=201_000)
    assert [name for name, _ in view.rows] == ["host in", "silent", "a name", "a", "clk"]
    assert dict(view.rows)["host in"] == "MRd 4 B @0xf000_0060"
    assert view.signals == ["text.host_in", "text.silent", "text.late", "top.a[7:0]", "top.clk"]
    assert view.named == {"A": 200_000, "B": 300_000}
