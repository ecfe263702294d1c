"""What `dxpu linux` is made of, without QEMU: the far end of its device, images, verdicts."""

import gzip
import os
import socket
import struct

import pytest

from dxpu_sim import cli
from dxpu_sim.linux import images
from dxpu_sim.linux.acs import Function, isolated, parse
from dxpu_sim.linux.complaints import complaints
from dxpu_sim.linux.config_bytes import ConfigBytes
from dxpu_sim.linux.images import ImagesMissing
from dxpu_sim.linux.initramfs import Initramfs
from dxpu_sim.linux.remote import Access, RemoteDevice, RemoteError
from dxpu_sim.linux.scenarios import MACHINES, SCENARIOS
from dxpu_sim.linux.vmd import BUSES, WINDOW, ConfigTarget, MemoryTarget, Vmd


class Qemu:
    """QEMU's end of the socket: messages as its `mpqemu-link.h` has them."""

    def __init__(self):
        self.socket, theirs = socket.socketpair()
        self.device = RemoteDevice(theirs)

    def send(self, command, data=b"", fds=()):
        message = struct.pack("<iiQ", command, 0, len(data)) + data
        socket.send_fds(self.socket, [message], list(fds))
        return self.device.receive()

    def answer(self):
        command, _, size, value = struct.unpack("<iiQQ", self.socket.recv(24))
        assert (command, size) == (1, 8)
        return value


def test_accesses_and_answers():
    qemu = Qemu()
    assert qemu.send(3, struct.pack("<IIi", 0x10, 0, 4)) == Access(True, False, 0x10, 4)
    qemu.device.answer(0x1234_5678)
    assert qemu.answer() == 0x1234_5678
    # Of a value only the bytes that are written count.
    assert qemu.send(2, struct.pack("<IIi", 6, 0xffff_abcd, 2)) == Access(True, True, 6, 2, 0xabcd)
    bar = struct.pack("<QQI?3x", 0xd000_0008, 0x1122_3344_5566_7788, 8, True)
    assert qemu.send(4, bar) == Access(False, True, 0xd000_0008, 8, 0x1122_3344_5566_7788)
    assert qemu.send(5, struct.pack("<QQI?3x", 0xd000_0003, 0, 1, True)) == Access(
        False, False, 0xd000_0003, 1)
    # A reset is answered at once.
    assert qemu.send(7) is None and qemu.device.resets == 1 and qemu.answer() == 0


def test_memory_is_the_guests():
    qemu, fds = Qemu(), []
    for content in (b"low", b"high"):
        fds.append(os.memfd_create("ram"))
        os.truncate(fds[-1], 2 << 12)
        os.pwrite(fds[-1], content, 1 << 12)
    mine = [os.dup(fd) for fd in fds]
    regions = struct.pack("<8Q8Q8q", 0, 1 << 32, *[0] * 6, 1 << 12, 1 << 12, *[0] * 6,
                          1 << 12, 1 << 12, *[0] * 6)
    assert qemu.send(0, regions, fds) is None
    memory = qemu.device.memory
    assert memory.read(0, 3) == b"low" and memory.read(1 << 32, 4) == b"high"
    assert memory.write(0xffe, b"ab") and os.pread(mine[0], 2, 0x1ffe) == b"ab"
    # Across the end, and where there is nothing: nothing, and not a part of it.
    assert memory.read(0xffe, 4) is None and not memory.write(0xffe, b"abcd")
    assert os.pread(mine[0], 2, 0x1ffe) == b"ab" and memory.read(1 << 20, 1) is None
    assert memory.read((1 << 32) - 1, 1) is None


def test_what_is_unknown_and_an_end():
    qemu = Qemu()
    with pytest.raises(RemoteError, match="QEMU sent command 9, which is unknown"):
        qemu.send(9)
    qemu.socket.close()
    with pytest.raises(EOFError):
        qemu.device.receive()


def test_configuration_bytes():
    config = ConfigBytes(256)
    config.place(0x10, 0x1234_5678, 4, writable=0x0000_ff0f, clears=0x0040_0000)
    config.write(0x10, 0xffff_ffff, 4)
    assert config.read(0x10, 4) == 0x1234_ff7f & ~0x0040_0000
    config.write(0x11, 0x00, 1)
    assert config.read(0x10, 4) == 0x1234_007f & ~0x0040_0000
    config.write(0x12, 0, 2)  # zeros clear nothing
    config.set_bits(0x12, 0x40, 2)
    assert config.read(0x12, 2) == 0x1274
    config.write(0x12, 0x40, 2)
    assert config.read(0x12, 2) == 0x1234
    config.write(0xfe, 0xffff_ffff, 4)
    assert config.read(0xfe, 4) == 0 and config.read(0x10, 1) == 0x7f


def test_windows_of_the_vmd():
    vmd = Vmd()
    assert vmd.target(0xd000_0000) is None
    for offset, size, base in ((0x10, BUSES << 20, 0xc000_0000), (0x18, WINDOW, 0xd000_0000),
                               (0x20, WINDOW, 0xe000_0000)):
        vmd.config.write(offset, 0xffff_ffff, 4)
        assert vmd.config.read(offset, 4) == (1 << 32) - size  # how software finds the size
        vmd.config.write(offset, base, 4)
    assert vmd.target(0xc000_0000) == ConfigTarget(0, 0, 0, 0)
    assert vmd.target(0xc000_0000 + (3 << 20 | 5 << 15 | 6 << 12 | 0x104)) == ConfigTarget(
        3, 5, 6, 0x104)
    assert vmd.target(0xd123_4567) == MemoryTarget(0xd123_4567)
    assert vmd.target(0xc100_0000) is None and vmd.target(0xf000_0000) is None


def entries(archive):
    """Name, mode and content of each entry of a cpio archive in the kernel's format."""
    data, at = gzip.decompress(archive), 0
    while True:
        assert data[at:at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n:at + 14 + 8 * n], 16) for n in range(13)]
        name = data[at + 110:at + 110 + fields[11]]
        assert name.endswith(b"\0")
        begin = at + 110 + fields[11] + 3 & ~3
        if name == b"TRAILER!!!\0":
            return
        yield name[:-1].decode(), fields[1], data[begin:begin + fields[6]]
        at = begin + fields[6] + 3 & ~3


def test_initramfs():
    files = Initramfs()
    files.add("init", b"#!/bin/sh\n")
    files.add("usr/share/odd", b"12345", 0o644)
    files.folder("proc")
    packed = files.pack()
    assert list(entries(packed)) == [
        ("init", 0o100755, b"#!/bin/sh\n"), ("usr", 0o40755, b""), ("usr/share", 0o40755, b""),
        ("usr/share/odd", 0o100644, b"12345"), ("proc", 0o40755, b"")]
    assert files.pack() == packed


def test_isolation_as_linux_judges_it():
    port = """Capabilities: [60] Express (v2) Downstream Port (Slot+), MSI 00
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid{} TransBlk- ReqRedir{} CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"""
    up = parse("Capabilities: [60] Express (v2) Upstream Port, MSI 00")
    gpu = parse("Capabilities: [48] Express (v2) Endpoint, MSI 00")
    assert (up, gpu) == (Function("Upstream Port"), Function("Endpoint"))
    on = parse(port.format("+", "+"))
    assert on == Function("Downstream Port", 0x5f, 0x1d)
    assert isolated([gpu, on, up])
    for off in (port.format("-", "+"), port.format("+", "-")):
        assert not isolated([gpu, parse(off), up])
    # What a port has no capability for it need not have turned on; without any it isolates nothing.
    assert isolated([gpu, Function("Downstream Port", 0x15, 0x15), up])
    assert not isolated([gpu, Function("Downstream Port"), up])
    assert not isolated([Function("Endpoint", multifunction=True), on, up])
    assert not isolated([gpu, on, up], 0x20 | 0x1d)
    with pytest.raises(ValueError, match="no PCI Express function"):
        parse("nothing")


def test_complaints_are_warnings_that_nobody_expects():
    dmesg = "\n".join((
        "<6>[    1.0] pci 10000:03:00.0: all is well",
        "<4>[    2.0] pcieport 10000:02:00.0: can't derive routing for PCI INT A",
        "<4>[    3.0] pcieport 10000:02:00.0: pciehp: Slot(1): something is wrong",
        "<28>[    4.0] a daemon's warning", "<3>[    5.0] pcieport: AER: an error"))
    assert complaints(dmesg) == ["[    3.0] pcieport 10000:02:00.0: pciehp: Slot(1): something is "
                                 "wrong", "[    4.0] a daemon's warning",
                                 "[    5.0] pcieport: AER: an error"]
    assert complaints(dmesg, ["AER", "daemon"]) == [
        "[    3.0] pcieport 10000:02:00.0: pciehp: Slot(1): something is wrong"]


def test_list_names_every_scenario(capsys):
    assert cli.main(["linux", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert {s.machine for s in SCENARIOS.values()} == set(MACHINES)
    assert [name for name, s in SCENARIOS.items() if s.default] == [
        "empty", "bind", "unbind", "surprise"]


@pytest.mark.parametrize("argv, message", [
    (["--scenario", "party"], "--scenario must be 'all' or one of --list, not 'party'"),
    (["--seed", "x"], "--seed must be a whole number from 0 to 4294967295, not 'x'"),
    (["--json", "/nowhere/x"], "--json must be a file in a folder that is there, not '/nowhere/x'"),
    # Folders that look right.
    (["--json", "/proc/x"], "--json: cannot write '/proc/x': No such file or directory"),
    (["--json", "x" * 256], f"--json: cannot write {'x' * 256!r}: File name too long"),
    (["--out", __file__], f"--out must be a folder, but {__file__!r} is a file")])
def test_mistakes_get_one_line(argv, message, capsys, monkeypatch, tmp_path):
    """Before anything runs."""
    def begun():
        raise ImagesMissing("it runs")

    monkeypatch.setattr(images, "get", begun)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["linux", *argv]) == 2
    said = capsys.readouterr()
    assert said.err == f"dxpu linux: error: {message}\n" and not said.out


def test_a_machine_without_debians_packages_gets_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["linux", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "dxpu linux: error: no apt-cache here: QEMU, a kernel and lspci for the guest come from "
        "Debian's packages, so `dxpu linux` needs a Debian or a system like it\n")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_download_that_fails_says_why(monkeypatch, tmp_path):
    for name, text in (("apt-cache", "echo ' Depends: linux-image-1'; echo ' Candidate: 1'"),
                       ("apt-get", "echo 'E: no such place' >&2; exit 100")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ImagesMissing, match=r"failed \(E: no such place\); try `apt-get update`"):
        images.get()
