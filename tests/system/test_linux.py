"""``dxpu linux``: a stock kernel in stock QEMU is the host; what it says is the evidence."""

import json
import re
import socket
import struct
import threading
import time
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


class PlainEndpoint(threading.Thread):
    """An endpoint without any simulator: 64 bytes of configuration space, a BAR of 4 KiB."""

    WRITABLE = {0x04: 0x0006, 0x10: 0xffff_f000}

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.config = {0x00: 0x5678_1af4, 0x08: 0xff00_0000}
        self.memory = bytearray(b"\xa5" * 4096)
        self.requester_id = b"\1\0"

    def run(self):
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(str(self.path))
                break
            except OSError:
                time.sleep(0.05)
        self.send(1, b"TLPS\1\0\0\0")
        self.send(3, b"\1")
        while header := self.socket.recv(8, socket.MSG_WAITALL):
            length, kind = struct.unpack("<IB3x", header)
            payload = self.socket.recv(length, socket.MSG_WAITALL)
            if kind == 2:
                self.take(payload)
            elif kind == 4:
                self.config[0x04] = self.config[0x10] = 0
                self.send(3, bytes([not payload[0]]))

    def send(self, kind, payload):
        self.socket.sendall(struct.pack("<IB3x", len(payload), kind) + payload)

    def take(self, tlp):
        enables = tlp[7]
        mask = sum(0xff << 8 * n for n in range(4) if enables >> n & 1)
        if tlp[0] & 0x1f == 4:
            register, self.requester_id = (tlp[10] & 3) << 8 | tlp[11] & 0xfc, tlp[8:10]
            value = self.config.get(register, 0)
            if tlp[0] & 0x40:
                mask &= self.WRITABLE.get(register, 0)
                self.config[register] = value & ~mask | int.from_bytes(tlp[12:], "little") & mask
                self.complete(tlp)
            else:
                self.complete(tlp, value.to_bytes(4, "little"))
            return
        assert tlp[0] in (0x00, 0x40) and tlp[3] == 1, tlp.hex()
        at = int.from_bytes(tlp[8:12], "big") - self.config[0x10]
        if tlp[0] & 0x40:
            word = int.from_bytes(self.memory[at:at + 4], "little")
            self.memory[at:at + 4] = (
                word & ~mask | int.from_bytes(tlp[12:], "little") & mask).to_bytes(4, "little")
        else:
            self.complete(tlp, self.memory[at:at + 4], tlp[11] & 0x7c)

    def complete(self, tlp, data=b"", lower=0):
        self.send(2, bytes([0x4a if data else 0x0a, 0, 0, len(data) // 4]) + self.requester_id
                  + b"\0\4" + tlp[4:7] + bytes([lower]) + data)


def test_an_endpoint_of_another_simulation(tmp_path, capsys):
    """The command is given a socket; what connects is enumerated, its BAR read and written."""
    try:
        get()
    except ImagesMissing as error:
        pytest.skip(f"Linux: {error}")
    endpoint = PlainEndpoint(tmp_path / "s")
    endpoint.start()
    bar = "/sys/bus/pci/devices/10000:01:00.0/resource0"
    status = cli.main(["linux", "--listen", str(tmp_path / "s"), "--out", str(tmp_path / "out"),
                       "--line", "lspci -nv -s 10000:01:00.0 2>/dev/null",
                       "--line", "setpci -s 10000:01:00.0 COMMAND=2",
                       "--line", f"gpu read {bar} 0x104",
                       "--line", f"gpu write {bar} 0x104 0x01020304",
                       "--line", f"gpu read {bar} 0x104"])
    endpoint.join(10)
    said = capsys.readouterr().out
    if status == 3:
        pytest.skip(f"Linux: the machine is too busy: {said}")
    assert status == 0, said
    assert "10000:01:00.0 ff00: 1af4:5678" in said and "[size=4K]" in said
    assert re.findall(r"^== gpu read .*\n(\w+)$", said, re.MULTILINE) == ["a5a5a5a5", "01020304"]
    assert endpoint.memory[0x104:0x108] == b"\4\3\2\1" and not endpoint.is_alive()
    assert (tmp_path / "out/listen/console.log").read_text().count("Linux version") == 1
