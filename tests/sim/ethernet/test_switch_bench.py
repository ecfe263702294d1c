"""The Ethernet switch model under Verilator, and its captures."""

import json
import shutil
import struct
import subprocess

import pytest
from scapy.utils import RawPcapNgReader

from dxpu_sim.ethernet.capture import BAD, DROPPED, no_room
from dxpu_sim.ethernet.switch_design import SwitchBench
from dxpu_sim.run.runner import Design, simulate

PUBLIC = ("top.switch", *(f"top.{kind}{n}" for kind in ("source", "sink") for n in range(3)))


@pytest.fixture(scope="module")
def run():
    design = Design(SwitchBench, {"nodes": ((1, 0), (2, 1), (3, 2))})
    return simulate(design, "dxpu_sim.ethernet.switch_bench", public=PUBLIC)


def test_ethernet_switch(run):
    assert (run / "results.xml").exists()


def blocks(data):
    """Type and body of each block of a pcapng file (section 3.1 of its specification)."""
    while data:
        kind, length = struct.unpack("<II", data[:8])
        assert length % 4 == 0 and struct.unpack("<I", data[length - 4:length]) == (length,)
        yield kind, data[8:length - 4]
        data = data[length:]


def test_capture(run):
    """Three interfaces, all frames; a reader that nobody here wrote agrees, if there is one."""
    file = run / "traffic.pcapng"
    kinds = [kind for kind, _ in blocks(file.read_bytes())]
    assert kinds == [0x0A0D0D0A] + [1] * 3 + [6] * 180
    if tshark := shutil.which("tshark"):
        fields = subprocess.run(
            [tshark, "-r", file, "-o", "eth.check_fcs:TRUE", "-T", "fields", "-e",
             "frame.time_epoch", "-e", "frame.interface_name", "-e", "eth.fcs.status", "-e",
             "eth.type", "-e", "eth.len"],
            check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
        assert len(fields) == 180
        frames = [line.split("\t") for line in fields]
        assert {frame[1] for frame in frames} == {"port0", "port1", "port2"}
        # Of a frame whose random type, 1501 to 1535, is neither a length nor a type, tshark reads
        # no FCS.
        for *_, status, kind, length in frames:
            assert status == ("1" if kind or length else "")
        assert sum(frame[2] == "1" for frame in frames) > 170


def test_frames_that_go_no_farther_have_a_comment(run):
    """Frames 3, 8 and 9 are dropped by the fault, frame 6 is bad."""
    with RawPcapNgReader(str(run / "drops.pcapng")) as reader:
        packets = [meta for _, meta in reader]
    assert [meta.ifname for meta in packets] == [b"a"] * 12
    dropped, bad = [DROPPED.encode()], [BAD.encode()]
    assert [meta.comments for meta in packets] == [
        {3: dropped, 6: bad, 8: dropped, 9: dropped}.get(n) for n in range(12)]


def test_frames_without_room_in_a_queue_have_a_comment(run):
    """Those that port c did not get, and no other ones."""
    received = {bytes.fromhex(frame) for frame in json.loads((run / "full.json").read_text())}
    with RawPcapNgReader(str(run / "full.pcapng")) as reader:
        packets = list(reader)
    assert len(packets) == 60 and 5 < len(received) < 55
    comment = [no_room(["c"]).encode()]
    assert comment == [b"dropped: the queue to c is full"]
    for data, meta in packets:
        assert meta.comments == (None if data[:-4] in received else comment)


def test_several_full_queues_are_named():
    assert no_room(["host0", "host1"]) == "dropped: the queues to host0, host1 are full"
