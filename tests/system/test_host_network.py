"""`dxpu slots` and the example of docs/reference/host.md as processes.

They reach a simulated box over veth and AF_PACKET; frames get lost on the way. A network namespace
of its own keeps this machine's interfaces out of it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dxpu_cli.main import main
from dxpu_sim.ethernet.namespace import UNSHARE, why_not
from dxpu_sim.software_host.network import HOST_INTERFACE

ROOT = Path(__file__).parents[2]
#: The simulated box is slower than a real one by some thousands; its timers are those of hardware.
SLOWER = "20"
#: An example that everybody can run.
SPEED = ROOT / "examples/software_host/read_speed.py"

def example():
    """The program in docs/reference/host.md."""
    page = (ROOT / "docs/reference/host.md").read_text()
    text, = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(text.splitlines()) <= 10
    return text


#: Two threads use two devices of one host, and interrupts are delivered in a third.
THREADS = """
import random, sys, threading
from dxpu_host import EthernetPort, Host, Timers

with Host(EthernetPort(sys.argv[1], 1), timers=Timers().slower(float(sys.argv[2]))) as host:
    host.start()
    devices = [host.bind(0x101, slot) for slot in (1, 2)]
    assert len(host.enumerate()) == 2
    right = []

    def use(device, rng):
        for n in range(5):
            data, offset = rng.randbytes(rng.randint(1, 600)), rng.randrange(1000)
            device.bar[2].write(offset, data)
            right.append(device.bar[2].read(offset, len(data)) == data)
        device.enable()
        device.enable_msi()
        device.bar[0].write(0x60, bytes(4))
        device.wait_interrupt(0, after=0)

    threads = [threading.Thread(target=use, args=(device, random.Random(n)))
               for n, device in enumerate(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(right), [device.interrupts[0] for device in devices])
"""


def test_processes_use_a_box_over_veth(tmp_path):
    reason = why_not()
    if reason:
        pytest.skip(reason)
    programs = []
    for name, text in (("example", example()), ("threads", THREADS)):
        programs.append([sys.executable, str(tmp_path / f"{name}.py"), HOST_INTERFACE, SLOWER])
        (tmp_path / f"{name}.py").write_text(text)
    dxpu = [sys.executable, "-m", "dxpu_cli"]
    host = [*dxpu, "slots", "--iface", HOST_INTERFACE, "--box", "0x101", "--slower", SLOWER]
    speed = [sys.executable, str(SPEED), HOST_INTERFACE, "--slower", SLOWER, "--requests", "40"]
    commands = [[*host, "--slots", "1,2", "--json"], *programs, speed, [*host, "--slots", "2"],
                [*dxpu, "console", "console", "read", "control.node", "control.present"]]
    folder = tmp_path / "run"
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "dxpu_sim.software_host.network", str(folder),
         os.environ.get("DXPU_SEED", "1"), json.dumps(commands)],
        capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    report, shown, threads, speed, tree, registers = (
        (folder / f"command{n}.out").read_text() for n in range(6))
    found = json.loads(report)
    assert found["ok"] and found["problems"] == []
    assert [(d["address"], d["vendor"], d["device"], d["slot"]) for d in found["devices"]] == [
        ("01:00.0", 0x1234, 0xD0A0, 1), ("09:00.0", 0x1234, 0xD0A0, 2)]
    bars = [bar for d in found["devices"] for bar in d["bars"]]
    assert [bar["size"] for bar in bars] == [0x10000, 1 << 20] * 2
    spans = sorted((bar["address"], bar["address"] + bar["size"]) for bar in bars)
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert shown == "<Device 01:00.0 1234:d0a0, box 0x101 slot 1> b'DXPG' {0: 1}\n"
    assert threads == "10 [1, 1]\n"
    head, *rows = [line.split() for line in speed.splitlines()]
    assert head == ["under", "way", "reads/s", "MB/s"]
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16, 32]
    assert all(float(reads) > 0 for _, reads, _ in rows)
    assert tree == ("-[0000:00]---01.0-[01]----00.0  DXPU model GPU [1234:d0a0] 1 MiB, "
                    "box 0x101 slot 2\n")
    assert [line.split()[1:3] for line in registers.splitlines()] == [
        ["control.node", "00000101"], ["control.present", "00000003"]]
    wires = json.loads((folder / "wires.json").read_text())
    assert wires["lost"] and wires["frames"] > 200


def test_the_interface_must_be_one(capsys):
    assert main(["slots", "--iface", "no-such-one", "--box", "0x101"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dxpu slots: error: no interface 'no-such-one'; there are lo")
    assert error.count("\n") == 1


def in_namespace(code, *, setup="true"):
    """What ``code`` prints in a network namespace of its own."""
    return subprocess.run(
        [*UNSHARE, "sh", "-c", f'{setup}; exec "$0" "$@"', sys.executable, "-c", code],
        capture_output=True, text=True, cwd=ROOT)


def test_the_interface_must_be_up():
    if why_not():
        pytest.skip(why_not())
    done = in_namespace("from dxpu_cli.main import main; import sys; sys.exit(main("
                        "['slots', '--iface', 'a', '--box', '1']))",
                        setup="ip link add name a type veth")
    assert done.returncode == 2
    assert done.stderr == ("dxpu slots: error: interface 'a' is down; `sudo ip link set a up`\n")


def test_raw_frames_must_be_permitted():
    if why_not() or os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip(why_not() or "network: no root and setpriv, to give up a capability")
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", sys.executable, "-c",
         "from dxpu_cli.main import main; import sys; sys.exit(main("
         "['slots', '--iface', 'lo', '--box', '1']))"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "need the capability CAP_NET_RAW: run as root, or `sudo setcap" in done.stderr
