"""What `dxpu linux` is made of, without QEMU: the far end of its device, images, verdicts."""

import gzip
import json
import os
import re
import socket
import struct
import subprocess
from collections import deque
from pathlib import Path

import pytest

from dxpu_cli import main as cli
from dxpu_sim.linux.acs import Function, isolated, parse
from dxpu_sim.linux.carrier import images
from dxpu_sim.linux.carrier.complaints import complaints, stalls
from dxpu_sim.linux.carrier.config_bytes import ConfigBytes
from dxpu_sim.linux.carrier.guest import Guest, GuestFailed, GuestStalled
from dxpu_sim.linux.carrier.images import Images, ImagesMissing
from dxpu_sim.linux.carrier.initramfs import Initramfs
from dxpu_sim.linux.carrier.remote import Access, RemoteDevice, RemoteError
from dxpu_sim.linux.carrier.vmd import BUSES, WINDOW, ConfigTarget, MemoryTarget, Vmd
from dxpu_sim.linux.scenarios import MACHINES, SCENARIOS
from dxpu_sim.run.runner import SimulationFailed


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


#: What Linux 6.1 says when its only processor was away for 21 s.
STALL = """\
<3>[   96.284017] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
<3>[   96.284101] rcu: \t0-...!: (0 ticks this GP) idle=1b98/0/0x0 softirq=913/913 fqs=0 (false \
positive?)
<4>[   96.284138] \t(detected by 0, t=5252 jiffies, g=1405, q=38 ncpus=1)
<6>[   96.284172] Sending NMI from CPU 0 to CPUs 0:
<4>[   96.284177] NMI backtrace for cpu 0
<4>[   96.284206] CPU: 0 PID: 71 Comm: sh Not tainted 6.1.0-41-amd64 #1  Debian 6.1.158-1
<4>[   96.284226] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.2 04/01/2014
<4>[   96.284240] RIP: 0010:_raw_spin_unlock_irqrestore+0x15/0x40
<4>[   96.284263] Code: 85 d2 75 09 e8 a4 d8 0c ff 0f 1f 44 00 00 <c3> cc cc cc cc 66 66 2e
<4>[   96.284275] RSP: 0018:ffffa5c3000dfd80 EFLAGS: 00000246
<4>[   96.284288] RAX: 0000000000000001 RBX: ffff8d0f0f42e400 RCX: 0000000000000000
<4>[   96.284301] R10: 0000000000000001 R11: 0000000000000000 R12: 0000000000000001
<4>[   96.284313] FS:  00007f1b6c5e8740(0000) GS:ffff8d0f0fc00000(0000) knlGS:0000000000000000
<4>[   96.284325] CS:  0010 DS: 0000 ES: 0000 CR0: 0000000080050033
<4>[   96.284336] CR2: 000055d0c8f3b000 CR3: 0000000002a5c000 CR4: 0000000000750ef0
<4>[   96.284347] PKRU: 55555554
<4>[   96.284355] Call Trace:
<4>[   96.284366]  <TASK>
<4>[   96.284380]  ? uart_write+0x10a/0x250
<4>[   96.284394]  entry_SYSCALL_64_after_hwframe+0x6e/0xd8
<4>[   96.284421]  </TASK>
<3>[   96.285016] rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies! g1405 f0x0
<3>[   96.285036] rcu: \tPossible timer handling issue on cpu=0 timer-softirq=3309
<3>[   96.285049] rcu: rcu_preempt kthread starved for 5252 jiffies! g1405 f0x0 ->state=0x402
<3>[   96.285065] rcu: RCU grace-period kthread stack dump:
<6>[   96.285073] task:rcu_preempt     state:I stack:0     pid:15    ppid:2      flags:0x00004000
<6>[   96.285091] Call Trace:
<6>[   96.285099]  <TASK>
<6>[   96.285111]  __schedule+0x34d/0x9e0"""


def test_a_guest_without_a_processor_is_no_complaint():
    line = "<4>[   97.0] pcieport 10000:02:00.0: pciehp: Slot(1): something is wrong"
    assert complaints(STALL) == []
    assert complaints(f"{STALL}\n{line}") == complaints(line) == [line[3:]]
    assert stalls(STALL)[0].endswith("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:")
    lockup = "<0>[  30.1] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [kworker/0:1:9]"
    assert complaints(lockup) == [] and stalls(lockup) == [lockup]
    assert stalls(line) == []


def test_a_complaint_is_one_line():
    """What is dumped below it is not."""
    warning = "\n".join(f"<4>[   50.1] {line}" for line in (
        "------------[ cut here ]------------",
        "WARNING: CPU: 0 PID: 9 at drivers/pci/pci.c:2163 pci_disable_device+0x9b/0xb0",
        "Modules linked in: vmd", "CPU: 0 PID: 9 Comm: kworker Not tainted 6.1.0-41-amd64 #1",
        "RIP: 0010:pci_disable_device+0x9b/0xb0", "Call Trace:", " <TASK>",
        " ? __warn+0x7d/0xc0", " </TASK>", "---[ end trace 0000000000000000 ]---",
        "pcieport 10000:02:00.0: something else"))
    assert complaints(warning) == [
        "[   50.1] WARNING: CPU: 0 PID: 9 at drivers/pci/pci.c:2163 pci_disable_device+0x9b/0xb0",
        "[   50.1] pcieport 10000:02:00.0: something else"]


@pytest.mark.parametrize("console, load, kind, words", [
    ("all is well", 1.0, GuestFailed, "no shell after 9 s; the guest's last words: all is well"),
    (STALL, 1.0, GuestStalled, "it had no processor: .*rcu_preempt detected stalls"),
    ("all is well", 7.5, GuestStalled, "7.5 wanted each processor of this machine"),
    (None, 1.0, GuestFailed, "last words: none")])
def test_who_is_late_for_want_of_a_processor_has_not_failed(
        console, load, kind, words, tmp_path, monkeypatch):
    guest = Guest.__new__(Guest)
    guest.console = tmp_path / "console.log"
    if console is not None:
        guest.console.write_text(console)
    monkeypatch.setattr("dxpu_sim.linux.carrier.guest.busy", lambda: load)
    error = guest.late("no shell after 9 s")
    assert type(error) is kind and re.search(words, str(error))


@pytest.fixture
def linux(tmp_path, monkeypatch):
    """``dxpu linux`` with a simulation of which this is the result."""
    def run(**result):
        def simulate(design, bench, *, folder, **others):
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps(
                {"scenarios": {}, "evidence": {}, "complaints": [], "stalls": [], "stalled": False,
                 "running": None} | result))
            if "error" in result:
                raise SimulationFailed(result["error"])

        monkeypatch.setattr(images, "get", lambda: Images("qemu", [], Path("vmlinuz-6"), "x"))
        monkeypatch.setattr("dxpu_sim.run.runner.simulate", simulate)
        monkeypatch.setattr("dxpu_cli.prepare.prepare", lambda *_: None)
        monkeypatch.setattr(Images, "version", "QEMU 7.2, Linux 6")
        return cli.main(["linux", "--scenario", "empty", "--out", str(tmp_path / "out"),
                         "--json", str(tmp_path / "x.json")])
    return run


def test_a_guest_that_stalled_is_told_apart_from_one_that_failed(linux, tmp_path, capsys):
    assert linux(scenarios={"empty": True}) == 0
    assert linux(running="empty", error="the guest is wrong") == 1
    said = capsys.readouterr().out
    assert re.search("^empty +FAILED", said, re.M) and "FAILED: plain, empty: the guest" in said
    assert linux(running="empty", error="no shell", stalled=True) == 3
    said = capsys.readouterr().out
    assert re.search("^empty +STALLED", said, re.M) and "STALLED: plain, empty: no shell" in said
    assert "FAILED" not in said and "Nothing is known about the design: run it again" in said
    assert json.loads((tmp_path / "x.json").read_text())["machines"]["plain"]["stalled"]
    # The last good run's words are still there, and the bad ones' beside them.
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["failed", "plain"]
    assert linux(scenarios={"empty": True}, stalls=["rcu: INFO: rcu_preempt detected stalls"]) == 0
    assert "without a processor 1 times; nothing came of it" in capsys.readouterr().out


def test_list_names_every_scenario(capsys):
    assert cli.main(["linux", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert {s.machine for s in SCENARIOS.values()} == set(MACHINES)
    assert [name for name, s in SCENARIOS.items() if s.default] == [
        "empty", "bind", "unbind", "surprise"]


@pytest.mark.parametrize("argv, message", [
    (["--scenario", "party"], "--scenario must be 'all' or one of --list, not 'party'"),
    (["--line", "true"], "--line needs --listen"),
    (["--listen", "s", "--scenario", "bind"], "--scenario is not for --listen"),
    (["--listen", "s", "--line", "a\nb"],
     "--line must be one line without spaces around it, not 'a\\nb'"),
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
    assert not list(tmp_path.iterdir())


def test_a_download_that_fails_says_why(monkeypatch, tmp_path):
    for name, text in (("apt-cache", "echo ' Depends: linux-image-1'; echo ' Candidate: 1'"),
                       ("apt-get", "echo 'E: no such place' >&2; exit 100")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ImagesMissing, match=r"failed \(E: no such place\); try `apt-get update`"):
        images.get()


def test_a_line_of_which_the_guest_lost_a_part_is_sent_again():
    """The guest's loop tells by the length; the host sends the same line once more."""
    script = (images._GUEST / "init").read_text()
    loop = script[script.index("while read"):script.index("\ndone") + 5]
    sent = "11 echo  hello\n11 hello\necho  hello\n\n12 echo  hello!\n"
    said = subprocess.run(["sh", "-c", loop], input=sent, capture_output=True, text=True)
    assert said.stdout.splitlines() == [
        "hello", "@end 0", "@again", "@again", "@again", "hello!", "@end 0"]

    guest = object.__new__(Guest)
    guest._partial, guest._said, guest._ends, guest._begun = "", [], [], deque()
    (guest._shell, shell), (guest._test, _test) = socket.socketpair(), socket.socketpair()
    for end in (guest._shell, guest._test):
        end.setblocking(False)
    guest.begin("cat /tmp/x")
    for answer in (b"@again\n", b"text\n@end 0\n"):
        assert shell.recv(99) == b"10 cat /tmp/x\n"
        shell.send(answer)
        guest.poll()
    assert guest.ended() == ("text", 0) and not guest._begun
    with pytest.raises(ValueError, match="one line without spaces around it"):
        guest.begin("true ")
