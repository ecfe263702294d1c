"""The files of ``dxpu generate`` as users compile them: languages, simulators, lint, bytes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dxpu_cli import main as cli
from dxpu_cli.commands.generate import make
from dxpu_sim.run import verilate
from dxpu_tools import verilog_file
from dxpu_tools.identity import Identity, release
from tests.cli.test_generate import PAGE, check

BENCH = Path(__file__).parents[1] / "support" / "generated_bench.v"
#: A bench that other tools than Verilator want: with a timescale, which the file then needs too.
TIMED = "`timescale 1ns/1ns\nmodule timed;\n  dxpu_host host();\n  dxpu_box box();\nendmodule\n"
LANGUAGES = ("2005", "2012")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the page's commands make, and its example."""
    page, place = PAGE.read_text(), tmp_path_factory.mktemp("generated")
    commands = dict.fromkeys(re.findall(r"^dxpu (generate .*)$", page, re.M))
    before = os.getcwd()
    os.chdir(place)
    try:
        for command in commands:
            assert cli.main(command.split()) == 0
    finally:
        os.chdir(before)
    (place / "example.v").write_text(re.search(r"```verilog\n(.*?)```", page, re.S)[1])
    (place / "timed.v").write_text(TIMED)
    (place / "writes.vh").write_text(writes())
    assert {file.name for file in place.iterdir()} == {
        "dxpu_host.v", "dxpu_box.v", "example.v", "timed.v", "writes.vh"}
    return place


def rows():
    """Of the page's table of first writes: register, then address and value of box and host."""
    found = re.findall(r"^\| (\d+) \| `([\w.\[\]]+)`.*?" + r" \| (\w+|-)" * 4 + r" \|$",
                       PAGE.read_text(), re.M)
    assert [int(row[0]) for row in found] == list(range(1, 11))
    return [(row[1], *(None if word == "-" else int(word.removesuffix("h"), 16)
                       for word in row[2:])) for row in found]


def maps():
    """Register maps of the two proxies."""
    return (make("box", slots=1, paths=1, peers=1, streams=1).registers,
            make("host", slots=2, paths=1).registers)


def writes():
    """What the bench does in the middle: the page's writes, and its waits."""
    lines = []
    for name, *words in rows():
        for who, address, value in (("box", *words[:2]), ("host", *words[2:])):
            if address is not None:
                lines.append(f"{who}_access(16'h{address:x}, 1, 32'h{value:x});")
        if name == "control.session[0].mode":
            lines.append("wait_for(16'h080c, 7, 6);")
    lines += ["wait_for(16'h401c, 15, 1);", "wait_for(16'h003c, 3, 3);"]
    for who, registers in zip(("BOX", "HOST"), maps(), strict=True):
        placed, base = registers.find("counters.mac0_rx_good")
        lines.insert(0, f"`define {who}_GOOD 16'h{base + placed.address:x}")
    return "\n".join([*lines, ""])


def icarus(place, *words, language="2005"):
    """What Icarus Verilog says when it compiles."""
    if not shutil.which("iverilog"):
        pytest.skip("Icarus: no iverilog (Debian's package of that name)")
    done = subprocess.run(["iverilog", f"-g{language}", "-Wall", "-o", f"bench{language}", *words],
                          cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_example_of_the_page(folder):
    """What the page's example instantiates, all ports connected."""
    host, box = ((folder / f"dxpu_{role}.v").read_text() for role in ("host", "box"))
    check(host, "host", width=64, slots=2, paths=1)
    check(box, "box", width=64, slots=1, paths=1)
    for text in (host, box):
        assert "hdl/dxpu" not in text and "(* src" not in text, "depends on where the sources are"
    assert verilate.lint(folder / "example.v", folder / "dxpu_host.v", top="example") == ""


def test_first_writes_are_those_of_the_register_map():
    """Their addresses and fields, and those of what is read between them."""
    fields = {
        "control.node": ({"number": 0x101}, {"number": 1}),
        "control.quiet": ({"time": 16}, {"time": 16}),
        "control.boot": ({"counter": 1}, {"counter": 1}),
        "control.present": ({"slots": 1}, None),
        "control.peer[0].node": ({"number": 1, "valid": 1}, {"number": 0x101, "valid": 1}),
        "control.session[0].mode": ({"opener": 2}, {"opener": 1}),
        "table.operation_id": ({"value": 1}, {"value": 1}),
        "table.target": ({"node": 1}, {"node": 0x101, "slot": 1}),
        "table.paths": ({"mask": 1}, {"mask": 1}),
        "table.commit": ({"used": 1, "generation": 1},) * 2,
    }
    for name, *words in rows():
        for registers, wanted, address, value in zip(maps(), fields.pop(name), words[::2],
                                                     words[1::2], strict=True):
            if wanted is None:
                assert address is value is None
                continue
            placed, base = registers.find(name)
            assert base + placed.address == address, \
                f"{PAGE.name}: {name} is at {base + placed.address:04X}h, not {address:04X}h"
            assert placed.register.pack(**wanted) == value, name
    assert not fields
    page = PAGE.read_text()
    for name, field, bits in (("control.session[0].hello", "phase", "2:0"),
                              ("table.result", "code", "3:0"),
                              ("control.slot[0].state", None, "1:0")):
        placed, base = maps()[1].find(name)
        said = re.search(rf"bits\s+{bits}\s+of\s+`{re.escape(name)}`\s+\((?:host, )?(\w+)h\)", page)
        assert said and int(said[1], 16) == base + placed.address, f"{PAGE.name}: {name}"
        if field:
            assert placed.register.unpack(0x7FFFFFFF)[field] == (1 << int(bits[0]) + 1) - 1


def good(output):
    """The checks of what the bench prints; returns the digests of all outputs, cycle by cycle."""
    lines = output.strip().splitlines()
    assert lines[:7] == [
        "identity: 44585055", "identity: 44585055",
        "completion: 4a000001 00000004 00000000 d0f01234",
        lines[3], lines[4],
        # Type 1 has become Type 0, for function 0 of bus 3.
        "request: 04000001 0000050f 03000000",
        "completion: 4a000001 03000004 00000500 deadbeef"]
    assert lines[3].startswith("completion: 0a000000 01000004 00000100 ")
    assert lines[4].startswith("completion: 0a000000 02000004 00000200 ")
    for line in lines[7:9]:
        received, sent = map(int, re.fullmatch(r"good: (\d+) of (\d+)", line).groups())
        assert sent >= 3 and sent - 1 <= received <= sent
    assert lines[9] == "unknown: 0"
    assert lines[10].startswith("digest: ")
    return lines[10]


@pytest.fixture(scope="module")
def runs():
    """Digests by language, of the runs so far."""
    return {}


@pytest.mark.parametrize("language", ["2005", pytest.param("2012", marks=pytest.mark.long)])
def test_both_languages_behave_alike(folder, runs, language):
    """Registers, configuration reads, frames from MAC to MAC, a slot that is bound: in an
    event-driven simulator, from the first reset on, without an X at any output."""
    assert icarus(folder, "-s", "bench", str(BENCH), "dxpu_host.v", "dxpu_box.v",
                  language=language) == ""
    said = subprocess.run(["vvp", "-n", f"bench{language}"], cwd=folder, capture_output=True,
                          text=True, check=True).stdout
    runs[language] = good(said)
    assert len(set(runs.values())) == 1


@pytest.mark.long
def test_verilator_behaves_like_them(folder, runs):
    tools = verilate.verilator_tools()
    command = [tools / "verilator", "--binary", "--timing", "-Wno-fatal", "--top-module", "bench",
               "--output-split", "20000", "-CFLAGS", "-std=gnu++20", "-MAKEFLAGS",
               "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1 OPT_GLOBAL=-O1 OPT_SLOW=-O0",
               "--Mdir", "verilated", BENCH, "dxpu_host.v", "dxpu_box.v"]
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-2000:]
    said = subprocess.run(["verilated/Vbench"], cwd=folder, capture_output=True, text=True,
                          check=True).stdout
    digest = good("\n".join(line for line in said.splitlines() if not line.startswith("- ")))
    assert {*runs.values(), digest} == {digest}


def test_lint_is_silent(folder):
    """Of Verilator, also of the system's if there is one, by default rules, in both languages; the
    waivers end with the file."""
    tools = [verilate.verilator_tools() / "verilator"]
    if system := shutil.which("verilator", path="/usr/local/bin:/usr/bin"):
        tools.append(system)
    # Truncates, after the end of the file.
    (folder / "after.v").write_text(
        "module after(input [3:0] a, output b); assign b = a; endmodule\n")
    for tool in tools:
        environment = dict(os.environ)
        if tool is not tools[0]:
            environment.pop("VERILATOR_ROOT", None)
        for words in (["dxpu_host.v"], ["--language", "1364-2005", "dxpu_box.v"],
                      ["--top-module", "after", "dxpu_box.v", "after.v"]):
            done = subprocess.run([tool, "--lint-only", *words], cwd=folder, env=environment,
                                  capture_output=True, text=True)
            assert ("WIDTH" in done.stderr) == ("after" in words), done.stderr
            assert not re.search(r"dxpu_(host|box)\.v", done.stderr), done.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_icarus_warns_of_nothing(folder, language):
    for words in (["dxpu_host.v"], ["dxpu_box.v"],):
        assert icarus(folder, *words, language=language) == ""
    said = icarus(folder, "-s", "timed", "timed.v", "dxpu_host.v", "dxpu_box.v", language=language)
    assert not re.search(r"^dxpu", said, re.M)


def test_header(folder):
    """Who made it, of what, by which options; and how to compare without it."""
    text = (folder / "dxpu_host.v").read_text()
    header = [line for line in text.splitlines() if line.startswith("//")]
    assert text.splitlines()[:len(header)] == header
    assert header[0] == "// dxpu_host: DXPU host proxy; generated, do not edit"
    version = ".".join(map(str, release()))
    assert re.fullmatch(rf"// DXPU {version}, (commit \w{{8}}( with changes)?|release)", header[1])
    assert header[2] == ("// dxpu generate host --width 64 --slots 2 --paths 1 --peers 16 "
                         "--streams 4 --arq go-back-n --name dxpu_host")
    assert header[3] == "// SPDX-License-Identifier: Apache-2.0"
    assert verilog_file.without_header(text) == text[sum(len(line) + 1 for line in header):]
    assert verilog_file.identity_text(Identity()) == f"DXPU {version}, release"
    assert verilog_file.identity_text(Identity(0xABCDEF01, True)) == (
        f"DXPU {version}, commit abcdef01 with changes")


def test_equal_options_give_equal_bytes(folder, tmp_path):
    """Whatever the seed of hashes. The header is no part of it: somebody may commit meanwhile."""
    command = next(line for line in re.findall(r"^dxpu (generate .*)$", PAGE.read_text(), re.M)
                   if " box " in line)
    seed = 1 if os.environ.get("PYTHONHASHSEED") != "1" else 2
    subprocess.run([sys.executable, "-m", "dxpu_cli", *command.split()], cwd=tmp_path, check=True,
                   capture_output=True, env={**os.environ, "PYTHONHASHSEED": str(seed)})
    made, there = ((place / "dxpu_box.v").read_text() for place in (tmp_path, folder))
    assert verilog_file.without_header(made) == verilog_file.without_header(there)


@pytest.mark.long
def test_board_sources_do_not_depend_on_the_hash_seed():
    """What `dxpu build` hands on, of a design that does not say which commit it is of."""
    code = ("from dxpu_boards.build import prepare\n"
            "from dxpu_boards.registry import BOARDS\n"
            "from dxpu_boards.top import top\n"
            "board = BOARDS['genesys-2']\n"
            "files = prepare(board, top(board, 'box', board.roles['box']))\n"
            "print(*(f'{name}:{files[name]}' for name in sorted(files) if name != 'top.il'))")
    texts = {subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                            env={**os.environ, "PYTHONHASHSEED": str(seed)}).stdout
             for seed in (1, 2)}
    assert len(texts) == 1 and b"top.v:" in texts.pop()


@pytest.mark.parametrize("name", ["module", "logic", "new", "bit", "final", "soft", "checker"])
def test_keywords_are_no_names(tmp_path, capsys, name):
    assert cli.main(["generate", "box", "--name", name, "-o", str(tmp_path / "x.v")]) == 2
    assert capsys.readouterr().err == (
        "dxpu generate: error: --name must be no keyword of Verilog or SystemVerilog, not "
        f"{name!r}\n")
    assert not list(tmp_path.iterdir())


def test_all_keywords_are_there():
    """IEEE 1800-2017, annex B: 248 words, the 1364-2005 ones among them."""
    assert len(verilog_file.KEYWORDS) == 248
    assert {"always", "xor", "uwire", "s_until_with", "interconnect", "unique0"} <= \
        verilog_file.KEYWORDS
