"""dxpu_sim.ethernet.pcap, byte for byte against the pcapng specification."""

import struct

import pytest

from dxpu_sim.ethernet.pcap import PcapWriter


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
