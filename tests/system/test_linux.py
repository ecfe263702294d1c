"""``dxpu linux``: a stock kernel in stock QEMU is the host; what it says is the evidence."""

import json
import re
from collections import Counter

import pytest

from dxpu_cli import main as cli
from dxpu_cli.trace.packets import packets
from dxpu_sim.ethernet.pcap import INTERRUPT
from dxpu_sim.linux.carrier.images import ImagesMissing, get
from dxpu_sim.linux.scenarios import MACHINES, SCENARIOS


def run(folder, machine, names, *more):
    """Report of these scenarios; skips where there is no QEMU or kernel."""
    try:
        get()
    except ImagesMissing as error:
        pytest.skip(f"Linux: {error}")
    options = [word for name in names for word in ("--scenario", name)]
    file = folder / "report.json"
    status = cli.main(["linux", "--out", str(folder / "out"), "--json", str(file), *options,
                       *more])
    report = json.loads(file.read_text())
    if status == 3:
        pytest.skip(f"Linux: the machine is too busy: {report['machines'][machine]['error']}")
    result = report["machines"][machine]
    assert status == 0 and report["ok"], result["error"]
    assert set(result["scenarios"]) == set(names) and not result["complaints"]
    assert (folder / "out" / machine / "console.log").read_text().count("Linux version") == 1
    return result


def test_empty_slots_then_gpus_come_and_go(tmp_path):
    result = run(tmp_path, "plain", [s.name for s in SCENARIOS.values() if s.default])
    words = result["evidence"]
    assert len(re.findall(r"\[\w\w\]--$", words["empty slots (lspci -tv)"], re.MULTILINE)) == 8
    assert "Device 1234:d0a0" in words["a GPU has come (lspci -tv)"]
    assert "Kernel driver in use: pcieport" in words["a port with an empty slot (lspci -vv)"]
    assert words["video memory reads back"] == "1024 bytes written and read back, 0 words wrong"
    assert words["the copy engine"] == "16384 bytes to the GPU and back: the same"
    assert "Link Down" in words["a GPU is pulled (dmesg)"]
    assert result["counts"]["interrupts"] > 4 and result["counts"]["bytes read"] > 16384


@pytest.mark.long
@pytest.mark.machine
def test_a_guest_is_captured(tmp_path):
    """TLPs of the guest and of a GPU, frames between them, and as many interrupts as the guest
    counts."""
    result = run(tmp_path, "plain", ["bind"], "--pcap")
    seen = Counter((packet.place, packet.way, packet.comment)
                   for packet in packets(tmp_path / "out/plain/capture.pcapng"))
    assert seen["host", "out", INTERRUPT] == result["counts"]["interrupts"] > 0
    assert set(seen) == {("host", "out", INTERRUPT), *(
        (place, way, "") for place in ("host", "gpu0") for way in ("in", "out")), *(
        (f"{end} path 0", "", "") for end in ("host", "box0"))}


@pytest.mark.long
@pytest.mark.machine
@pytest.mark.parametrize("machine", MACHINES)
def test_all_scenarios(tmp_path, machine):
    run(tmp_path, machine,
        [s.name for s in SCENARIOS.values() if s.machine == machine and not s.default])
