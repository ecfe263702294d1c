"""``dxpu demo`` as a user runs it: exit status, report, pictures, waves, one line per mistake."""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.support import gtkwave_viewer
from tests.support.tshark import Tshark
import pytest
from scapy.utils import RawPcapNgReader

from dxpu.tlp.types import Type
from dxpu_cli.commands.demo import system_design
from dxpu_model.wire import parse
from dxpu_sim.ethernet.capture import DROPPED
from dxpu_sim.ethernet.namespace import why_not
from dxpu_sim.ethernet.pcap import ETHERNET, TLP
from dxpu_sim.run import runner
from dxpu_sim.waves import groups as wave_groups, gtkwave

ROOT = Path(__file__).parents[2]
KEYS = {"ok", "seed", "checks", "gpus", "round_trip_ns", "h2d_MBps", "d2h_MBps",
        "conversion_cycles", "frames", "tlps", "simulated_cycles_per_s", "split", "stages",
        "counters", "cycles", "tree"}


def dxpu(*argv, **options):
    return subprocess.run([sys.executable, "-m", "dxpu_cli", *argv], capture_output=True, text=True,
                          **options)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Finished run and its folder."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return dxpu("demo", "--size", "4096", "--reads", "2", "--seed", "7", "--out", str(out)), out


def test_succeeds(demo):
    run, out = demo
    assert run.returncode == 0, run.stdout + run.stderr
    # No terminal: plain lines, one per step, none rewritten.
    assert "\r" not in run.stdout
    for step in ("Booting the host with empty slots", "GPU 2 arrives",
                 "Copying 4,096 bytes from host to GPU",
                 "The same with 1% of all frames lost, and path 0 dying",
                 "Somebody pulls GPU 2 while it copies"):
        assert re.search(rf"^  {step} +done +\d", run.stdout, re.MULTILINE), run.stdout
    assert "FAILED" not in run.stdout


def test_tree_shows_the_switch_and_three_gpus(demo):
    run, out = demo
    tree = json.loads((out / "report.json").read_text())["tree"]
    assert tree in run.stdout
    lines = tree.splitlines()
    assert lines[0].startswith("-[0000:00]-")
    assert sum("DXPU model GPU [1234:d0a0]" in line for line in lines) == 3
    for n, place in enumerate(("box 0 slot 1", "box 0 slot 2", "box 1 slot 1")):
        assert re.search(rf"0{n}\.0-\[\w+\]----00\.0  .*{place}$", lines[n]), tree
    # All eight ports, five of them empty.
    assert len(lines) == 8 and sum(line.endswith("]--") for line in lines) == 5


def steps(text):
    """Steps and what was seen in each, without their times."""
    return re.sub(r" +done +\d+\.\d s", "", text)


def test_a_pool_is_managed_as_the_page_shows(demo):
    """By a process, over a veth or at a UNIX socket."""
    run, out = demo
    pool = json.loads((out / "report.json").read_text())["pool"]
    assert pool["error"] is None and len(pool["checks"]) == 10 and all(pool["checks"].values())
    assert pool["veth"] == (not why_not())
    page = (ROOT / "docs/howto/run-the-demo.md").read_text()
    shown, = re.findall(r"<!-- the pool -->\n\n```text\n(.*?)```", page, re.DOTALL)
    # A step that takes long has lines on the way.
    said = steps(re.sub(r".* \.\.\. .*\n", "", run.stdout))
    for line in steps(shown).splitlines():
        if pool["veth"] or "veth" not in line:
            assert f"\n{line}\n" in said, line
    assert re.search(r"\nok: 21 checks of the fabric and 10 of the pool held, in \d+ s\n$",
                     run.stdout)


def test_report(demo):
    _, out = demo
    report = json.loads((out / "report.json").read_text())
    assert set(report) >= KEYS
    assert report["ok"] is True and report["seed"] == 7 and report["error"] is None
    assert len(report["checks"]) == 21 and all(v is True for v in report["checks"].values())
    assert len(report["gpus"]) == 3 and len({g["serial"] for g in report["gpus"]}) == 3
    assert {g["interrupts"] for g in report["gpus"]} == {"MSI", "MSI-X"}
    assert report["frames"] > 100 and report["tlps"] > 100
    assert report["simulated_cycles_per_s"] > 0
    assert report["frames_sent_again"] > 0 and report["frames_lost"] > 0
    # A reset and two frames at least; a frame and what the host needs to ask.
    assert 1000 < report["bind_to_first_config_ns"] < 50_000
    assert 1000 < report["loss_to_ur_ns"] < 50_000


def test_round_trip_is_split_without_rest(demo):
    _, out = demo
    report = json.loads((out / "report.json").read_text())
    total = report["round_trip_ns"]
    assert total == pytest.approx(sum(s["end_ns"] - s["start_ns"] for s in report["stages"]))
    assert total == pytest.approx(sum(part["ns"] for part in report["split"].values()))
    # Two frames of at least 64 + 8 bytes, each sent twice at 8 ns a byte, cannot be quicker.
    assert report["split"]["wire"]["ns"] > 2 * 2 * 72 * 8
    assert len(report["conversion_cycles"]) == 4
    assert all(0 < c < 200 for c in report["conversion_cycles"])
    assert report["split"]["conversion"]["cycles"] == pytest.approx(
        sum(report["conversion_cycles"]), abs=2)


def test_bandwidth_is_possible(demo):
    _, out = demo
    report = json.loads((out / "report.json").read_text())
    for key in ("h2d_MBps", "d2h_MBps"):
        assert 5 < report[key] < 125, key


def test_timeline(demo):
    _, out = demo
    text = (out / "timeline.svg").read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    for n in range(1, 5):
        assert f"conversion {n} " in text
    assert (out / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_wave_covers_the_cycles_around_the_read(demo):
    _, out = demo
    report = json.loads((out / "report.json").read_text())
    start, end = report["stages"][0]["start_ns"], report["stages"][-1]["end_ns"]
    assert report["wave_from_ns"] < start and end < report["wave_to_ns"]
    cycles = round((report["wave_to_ns"] - report["wave_from_ns"]) / 8)
    assert 50_000 <= cycles < 60_000
    wave = wave_of(out)
    assert wave.stat().st_size > 100_000
    if can_convert():
        times = [int(line[1:]) for line in vcd(wave) if line.startswith("#")]
        assert times[0] == pytest.approx(report["wave_from_ns"] * 1e3, abs=8e3)
        assert times[-1] == pytest.approx(report["wave_to_ns"] * 1e3, abs=8e3)


def wave_of(out):
    return out / "wave.fst"


def can_convert():
    return shutil.which("fst2vcd") is not None


def vcd(path):
    """Lines of a wave in VCD format, by GTKWave's converter."""
    with subprocess.Popen(["fst2vcd", path], stdout=subprocess.PIPE, text=True) as program:
        yield from program.stdout


def test_save_file_names_signals_of_the_wave_and_tables(demo):
    _, out = demo
    wave = wave_of(out)
    lines = (out / "wave.gtkw").read_text().splitlines()
    assert f'[dumpfile] "{wave}"' in lines
    signals = [line.split()[-1] for line in lines if re.match(r"[+#]\{.*\} top\.", line)]
    assert len(signals) > 500
    tables = {line.split()[-1] for line in lines if line.startswith("^")}
    assert 20 < len(tables) <= gtkwave.MAX_TABLES
    for table in tables:
        assert re.fullmatch(r"([0-9a-f]+ \S+\n)+", Path(table).read_text())
    if can_convert():
        assert set(signals) <= names_in(wave)


def test_every_signal_of_the_way_is_in_the_verilog():
    verilog = runner.verilog(system_design())
    assert gtkwave.unmatched(wave_groups.system_groups((2, 1)), verilog) == []


def test_gtkwave_opens_on_the_whole_read(demo, tmp_path):
    _, out = demo
    report = json.loads((out / "report.json").read_text())
    start, end = (round(1e3 * report["stages"][n][key])
                  for n, key in ((0, "start_ns"), (-1, "end_ns")))
    lines = (out / "wave.gtkw").read_text().splitlines()
    wanted = [line.partition("}")[0][2:] for line in lines if re.match(r"[+#]\{", line)]
    way = len(wave_groups.WAY)
    # In the middle of the frame to the box; from another folder, and after the wave was moved.
    moved = out.with_name("moved here")
    out.rename(moved)
    try:
        view = gtkwave_viewer.look(moved / "wave.gtkw", tmp_path, changes=way,
                                   at=round(1e3 * report["stages"][3]["start_ns"]) + 100_000)
    finally:
        moved.rename(out)
    assert view.dump == str(moved / wave_of(out).name)
    # Each row is found, and no two are called the same unless they show the same.
    assert [name for name, _ in view.rows] == wanted and len(view.signals) == len(wanted)
    assert len(set(wanted)) == len(set(zip(wanted, view.signals, strict=True)))
    # The read is in sight, and fills at least half of the window; so is the marker.
    left, right = view.window
    assert left < view.marker == start < end < right
    assert end - start > (right - left) / 2
    # The read takes one step of its way after the other.
    steps = []
    for row, changes in zip(wave_groups.WAY, view.changes, strict=True):
        times = [time for time, value in changes if value == "1" and start <= time <= end]
        assert times, row.label
        steps.append(times[0])
    assert steps == sorted(steps)
    values = dict(view.rows)
    assert values["host core engine tx preamble info note type"] == "TLP"
    assert values["host mac0 transmitter fsm_state"] in ("Preamble", "Data")
    assert values["host core engine rx judge judge_state"] in ("Wait", "Report")
    assert values["host core switch downstream_o meta cls"] == "NP"
    # The queue in front of the switch shows some TLP of before.
    assert values["host core switch upstream_info type"] in Type.__members__


def names_in(wave):
    """Full names of all signals of a wave."""
    names, scope = set(), []
    for line in vcd(wave):
        words = line.split()
        if words[:1] == ["$scope"]:
            scope.append(words[2])
        elif words[:1] == ["$upscope"]:
            scope.pop()
        elif words[:1] == ["$var"]:
            names.add(".".join((*scope, "".join(words[4:-1]))))
        elif words[:1] == ["$enddefinitions"]:
            break
    return names


@pytest.mark.parametrize("argv, message", [
    (("--width", "48"), "--width must be one of 32, 64, 128, 256, 512, not '48'"),
    (("--size", "big"), "--size must be a number of bytes such as 4096 or 64K, not 'big'"),
    (("--gpus", "99"), "--gpus must be a whole number from 1 to 8, not '99'"),
    (("--seed", "x"), "--seed must be a whole number from 0 to 4294967295, not 'x'"),
    (("--wave", "maybe"), "argument --wave: invalid choice: 'maybe'"),
    (("--bogus",), "unrecognized arguments: --bogus"),
])
def test_mistakes_get_one_line(argv, message, tmp_path):
    run = dxpu("demo", *argv, "--out", str(tmp_path / "out"))
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1 and message in run.stderr, run.stderr
    assert not (tmp_path / "out").exists()


def test_help_explains_every_option():
    run = dxpu("demo", "--help")
    assert run.returncode == 0
    for option in ("boxes", "gpus", "width", "seed", "size", "wave", "wave-cycles", "reads",
                   "pool", "out"):
        assert re.search(rf"--{option} \S[^\n]*\n? +\S+", run.stdout), option


@pytest.mark.long
def test_a_run_is_captured(tmp_path):
    """Every frame is one of DXF that a receiver takes, but for those that a fault has dropped; the
    TLPs of the PCIe ports are those that the run counts; reads are answered. The wave has rows in
    words."""
    out = tmp_path / "out"
    run = dxpu("demo", "--pcap", "--pool", "off", "--wave-cycles", "5000", "--reads", "2", "--size",
               "4096", "--out", str(out))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"wireshark -C DXPU {out / 'capture.pcapng'}" in run.stdout
    report = json.loads((out / "report.json").read_text())
    with RawPcapNgReader(str(out / "capture.pcapng")) as reader:
        packets = [(data, meta) for data, meta in reader]
    frames = [(data, meta) for data, meta in packets if meta.linktype == ETHERNET]
    tlps = [(data, meta) for data, meta in packets if meta.linktype == TLP]
    times = [meta.tshigh << 32 | meta.tslow for _, meta in packets]
    assert times == sorted(times)
    dropped = [meta for _, meta in frames if meta.comments]
    assert {meta.comments[0] for meta in dropped} == {DROPPED.encode()}
    assert len(dropped) == report["frames_lost"] > 0
    for data, _ in frames:
        parse(data, with_fcs=True)
    assert {meta.ifname.decode() for _, meta in tlps} == {"host", "gpu0", "gpu1", "gpu2"}
    assert sum(meta.direction == 1 for _, meta in tlps) == report["pcie_tlps"]
    assert {meta.direction for _, meta in tlps} == {1, 2}
    tshark = Tshark(tmp_path)
    shutil.copy(out / "capture.pcapng", tshark.capture)
    rows = tshark.rows("dxf.drop_cause", "tlp.response_time", "_ws.expert.message",
                       options=("-Y", "dxf"))
    assert len(rows) == len(frames) and not [row for row in rows if row[0]]
    assert sum(bool(row[1]) for row in rows) > 100
    assert "Lua Error" not in "".join(row[2] for row in rows)
    labels = re.findall(r"^\+\{(.*)\} text\.", (out / "wave.gtkw").read_text(), re.MULTILINE)
    assert {"events", "host in", "gpu2 out", "box1 path 0", "box0 slot 2 life"} <= set(labels)
    # Where the read begins that the wave is about.
    begin = report["stages"][0]["start_ns"]
    view = gtkwave_viewer.look(out / "wave.gtkw", tmp_path, at=round(begin + 200) * 1000)
    assert [name for name, _ in view.rows][:len(labels)] == labels
    assert re.fullmatch(r"MRd 4 B @0x\w+ tag \d+", dict(view.rows)["host in"])
