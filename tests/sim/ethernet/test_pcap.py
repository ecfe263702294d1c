"""dxpu_sim.ethernet.pcap, byte for byte against the pcapng specification."""

import struct

import pytest
from scapy.utils import RawPcapNgReader

from dxpu_sim.ethernet.pcap import TLP, PcapWriter


def test_file(tmp_path):
    path = tmp_path / "x.pcapng"
    with PcapWriter(path) as writer:
        assert writer.interface("a") == 0
        assert writer.interface("bcd0") == 1
        writer.write(1, (5 << 32) + 7, b"abcde", "note")
        assert writer.packets == 1
    expected = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    for name in (b"a\0\0\0", b"bcd0"):
        options = struct.pack("<HH", 2, len(name.rstrip(b"\0"))) + name
        options += struct.pack("<HHB3x", 9, 1, 9) + struct.pack("<HHB3x", 13, 1, 4) + bytes(4)
        length = 20 + len(options)
        expected += struct.pack("<IIHHI", 1, length, 1, 0, 0) + options
        expected += struct.pack("<I", length)
    body = struct.pack("<IIIII", 1, 5, 7, 5, 5) + b"abcde\0\0\0"
    body += struct.pack("<HH", 1, 4) + b"note" + bytes(4)
    expected += struct.pack("<II", 6, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))
    assert path.read_bytes() == expected


def test_interface_is_checked(tmp_path):
    with PcapWriter(tmp_path / "x.pcapng") as writer, \
            pytest.raises(ValueError, match="interface must be one that was described, not 0"):
        writer.write(0, 0, b"")


def test_packets_as_scapy_reads_them(tmp_path):
    """Types of link, names, nanoseconds, directions, damage and comments."""
    path = tmp_path / "x.pcapng"
    with PcapWriter(path) as writer:
        writer.interface("eth")
        writer.interface("gpu0", TLP)
        writer.write(0, 1_000_000_007, b"frame", "lost", damaged=True)
        writer.write(1, 2_000_000_009, b"tlp-in", inbound=True)
        writer.write(1, 2_000_000_010, b"tlp-out!", inbound=False)
    with RawPcapNgReader(str(path)) as reader:
        packets = list(reader)
    seen = [(data, meta.linktype, meta.ifname, (meta.tshigh << 32 | meta.tslow), meta.comments)
            for data, meta in packets]
    assert seen == [
        (b"frame", 1, b"eth", 1_000_000_007, [b"lost"]),
        (b"tlp-in", 147, b"gpu0", 2_000_000_009, None),
        (b"tlp-out!", 147, b"gpu0", 2_000_000_010, None)]
    assert [meta.direction for _, meta in packets] == [0, 1, 2]
    assert struct.pack("<HHI", 2, 4, 1 << 24) in path.read_bytes()


def test_a_window_puts_packets_in_order(tmp_path):
    path = tmp_path / "x.pcapng"
    with PcapWriter(path, window_ns=10) as writer:
        writer.interface("a")
        for time in (5, 12, 8, 20, 19, 40, 31, 30):
            writer.write(0, time, bytes([time]))
        assert writer.packets == 8
    with RawPcapNgReader(str(path)) as reader:
        assert [data[0] for data, _ in reader] == [5, 8, 12, 19, 20, 30, 31, 40]
