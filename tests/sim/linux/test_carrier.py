"""dxpu_sim.linux.carrier without QEMU: the socket's rules, and a root port above it.

The simulation's end is written here from the page alone.
"""

import asyncio
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dxpu_cli import main as cli
from dxpu_sim.linux.carrier import Carrier, EdgeClosed, EdgeError, images
from dxpu_sim.linux.carrier.remote import GuestMemory
from dxpu_sim.linux.carrier.root_port import RootPort
from dxpu_sim.linux.carrier.tasks import AsyncioTasks
from dxpu_sim.pcie.tlps import CompletionTimeout

HELLO, TLP, LINK, RESET = 1, 2, 3, 4
GREETING = b"TLPS\x01\0\0\0"
#: Completion with data: one dword, for tag 0 of requester 00:00.0.
COMPLETION = bytes.fromhex("4a000001 01000004 00000000")


class Simulation:
    """The lower end of the socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(10)

    def send(self, kind, payload=b""):
        self.socket.sendall(struct.pack("<IB3x", len(payload), kind) + payload)

    def receive(self):
        """The next message; ``None`` at the end."""
        header = self.socket.recv(8, socket.MSG_WAITALL)
        if not header:
            return None
        length, kind = struct.unpack("<IB3x", header)
        return kind, self.socket.recv(length, socket.MSG_WAITALL)

    async def next(self):
        return await asyncio.to_thread(self.receive)


async def meet(carrier, path):
    """A simulation that has greeted, with its link up."""
    simulation = Simulation(path)
    simulation.send(HELLO, GREETING)
    simulation.send(LINK, b"\1")
    await carrier.attached(timeout_s=10)
    assert await simulation.next() == (HELLO, GREETING)
    return simulation


async def settle(condition):
    """Wait until ``condition`` holds."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 5 s")


def run(tmp_path, work, **options):
    """Run ``work`` with a carrier and the path of its socket."""
    async def all():
        async with Carrier(tmp_path / "s", tmp_path, **options) as carrier:
            await work(carrier, tmp_path / "s")
    asyncio.run(all())
    assert not (tmp_path / "s").exists()


def test_the_carrier_needs_no_gateware_and_no_system():
    """What its import loads is the carrier's own, tools, and TLPs as bytes."""
    program = ("import sys, dxpu_sim.linux.carrier\n"
               "print(*sorted(n for n in sys.modules if n.startswith(('dxpu', 'amaranth'))))")
    loaded = set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                check=True).stdout.split())
    assert "dxpu_sim.linux.carrier.edge" in loaded
    assert {name for name in loaded
            if not name.startswith(("dxpu_sim.linux.carrier", "dxpu_tools"))} == {
        "dxpu_sim", "dxpu_sim.linux", "dxpu_sim.run", "dxpu_sim.run.pulse", "dxpu_sim.run.watchdog",
        "dxpu_sim.pcie", "dxpu_sim.pcie.tlp_types", "dxpu_sim.pcie.tlps"}


@pytest.mark.parametrize(("messages", "words"), [
    ([(LINK, b"\1")], "first message must be HELLO with 8 bytes, not LINK with 1"),
    ([(HELLO, b"TLPS\x02\0\0\0")], "HELLO must say b'TLPS' and version 1, not b'TLPS' and 2"),
    ([(HELLO, b"SPLT\x01\0\0\0")], "not b'SPLT' and 1"),
    ([(HELLO, GREETING), (HELLO, GREETING)], "HELLO with 54 4c 50 53 01 00 00 00 is no message"),
    ([(HELLO, GREETING), (9, b"")], "there is no kind 9 of messages"),
    ([(HELLO, GREETING), (LINK, b"\2")], "LINK with 02 is no message to the carrier"),
    ([(HELLO, GREETING), (RESET, b"\1")], "RESET with 01 is no message to the carrier"),
    ([(HELLO, GREETING), (TLP, bytes(8))], "at least 3 whole dwords, not 8 bytes"),
    ([(HELLO, GREETING), (TLP, bytes(13))], "at least 3 whole dwords, not 13 bytes"),
    ([(HELLO, GREETING), (TLP, bytes(4113))], "at most 4112 bytes behind its header, not 4113"),
    ([(HELLO, GREETING), (TLP, COMPLETION)], "a TLP of 12 bytes has a header for 16: 4a 00 00 01"),
    ([(HELLO, GREETING), (TLP, b"\x20" + bytes(11))], "of 12 bytes has a header for 16"),
    ([(HELLO, GREETING), (TLP, b"\x80" + bytes(11))], "prefixes cannot be carried"),
    ([(HELLO, GREETING), (TLP, b"\0\0\x80\1" + bytes(8))], "digests cannot be carried"),
])
def test_a_rule_that_is_broken_is_named(tmp_path, messages, words):
    async def work(carrier, path):
        simulation = Simulation(path)
        for kind, payload in messages:
            simulation.send(kind, payload)
        with pytest.raises(EdgeError, match=words):
            await carrier.attached(timeout_s=10)
    run(tmp_path, work)


def test_who_does_not_come_or_says_nothing_or_goes(tmp_path):
    async def nobody(carrier, path):
        with pytest.raises(EdgeError, match=r"no simulation at .*/s within 0.05 s"):
            await carrier.attached(timeout_s=0.05)

    async def silent(carrier, path):
        simulation = Simulation(path)
        with pytest.raises(EdgeError, match=r"no HELLO within 0.05 s"):
            await carrier.attached(timeout_s=10)
        simulation.socket.close()

    async def without_link(carrier, path):
        simulation = Simulation(path)
        simulation.send(HELLO, GREETING)
        await settle(lambda: hasattr(carrier, "edge"))
        with pytest.raises(EdgeError, match=r"no link at .*/s within 0.05 s"):
            await carrier.attached(timeout_s=0.05)
        simulation.socket.close()

    async def gone(carrier, path):
        simulation = Simulation(path)
        simulation.send(HELLO, GREETING)
        simulation.socket.sendall(b"\5")
        simulation.socket.shutdown(socket.SHUT_WR)
        with pytest.raises(EdgeClosed, match="closed the socket within a message"):
            await carrier.attached(timeout_s=10)

    run(tmp_path, nobody)
    run(tmp_path, silent, timeout_s=0.05)
    run(tmp_path, without_link)
    run(tmp_path, gone)


def test_one_simulation_at_a_time(tmp_path):
    async def work(carrier, path):
        first = await meet(carrier, path)
        assert await Simulation(path).next() is None
        assert carrier.edge.up
        first.send(LINK, b"\0")
        await settle(lambda: not carrier.edge.up)
    run(tmp_path, work)


def test_the_carrier_ends_the_connection(tmp_path):
    ends = []

    async def work(carrier, path):
        ends.append(await meet(carrier, path))
    run(tmp_path, work)
    assert ends[0].receive() is None


class Above:
    """A root port above the edge of a carrier, with bus 1 below it."""

    def __init__(self, carrier, **options):
        self.errors = []
        tasks = AsyncioTasks(self.errors.append)
        self.edge = carrier.edge
        self.root = RootPort(self.edge, GuestMemory(), lambda *_: None, tasks, **options)
        self.root.partner(self.edge.up)
        self.edge.changed.append(self.root.partner)
        self.root.registers.write(0x18, 0x010100, 3)

    def read(self):
        """Begin to read the first register of 01:00.0."""
        return asyncio.ensure_future(self.root.config_read(1, 0, 0, 0, 4))


def test_a_configuration_read_in_wire_order(tmp_path):
    async def work(carrier, path):
        simulation = await meet(carrier, path)
        read = Above(carrier).read()
        kind, tlp = await simulation.next()
        # CfgRd0, one dword, requester 00:00.0, tag 0, all bytes, 01:00.0 register 0.
        assert (kind, tlp) == (TLP, bytes.fromhex("04000001 0000000f 01000000"))
        simulation.send(TLP, COMPLETION + bytes.fromhex("3412a0d0"))
        assert await read == 0xd0a0_1234
        assert (carrier.edge.tlps_sent, carrier.edge.tlps_received) == (1, 1)
    run(tmp_path, work)


def test_a_link_that_goes_ends_what_is_open(tmp_path):
    async def work(carrier, path):
        simulation = await meet(carrier, path)
        above = Above(carrier)
        assert above.root.registers.read(0x52, 2) & 0x2000
        read = above.read()
        await simulation.next()
        simulation.send(LINK, b"\0")
        assert await read == 0xffff_ffff
        assert not above.root.registers.read(0x52, 2) & 0x2000
        # Without a link nothing is sent, and what comes is dropped.
        assert await above.read() == 0xffff_ffff
        simulation.send(TLP, COMPLETION + bytes(4))
        await settle(lambda: carrier.edge.tlps_dropped == 1)
        simulation.send(LINK, b"\1")
        await settle(lambda: above.root.up)
        read = above.read()
        assert (await simulation.next())[0] == TLP
        simulation.send(TLP, COMPLETION[:10] + b"\1\0" + b"\0\0\0\1")
        assert await read == 0x0100_0000
    run(tmp_path, work)


def test_what_was_sent_before_a_reset_does_not_end_it(tmp_path):
    async def work(carrier, path):
        simulation = await meet(carrier, path)
        above = Above(carrier)
        await above.root.config_write(0, 0, 0, 0x3e, 2, 0x40)  # Secondary Bus Reset
        assert await simulation.next() == (RESET, b"\1") and not above.root.up
        # The simulation has not read RESET yet.
        simulation.send(TLP, COMPLETION + bytes(4))
        simulation.send(LINK, b"\1")
        await settle(lambda: carrier.edge.tlps_dropped == 1)
        await above.root.config_write(0, 0, 0, 0x3e, 2, 0)
        assert await simulation.next() == (RESET, b"\0")
        simulation.send(LINK, b"\1")
        simulation.send(TLP, COMPLETION + bytes(4))
        await settle(lambda: carrier.edge.tlps_dropped == 2)
        assert not above.root.up
        with pytest.raises(EdgeError, match=r"no LINK 0 after RESET 1 at .*/s within 0.05 s"):
            await carrier.attached(timeout_s=0.05)
        # It has.
        simulation.send(LINK, b"\0")
        simulation.send(LINK, b"\1")
        await settle(lambda: above.root.up)
        assert not above.errors
    run(tmp_path, work)


def test_a_request_that_is_never_completed_is_named(tmp_path):
    async def work(carrier, path):
        await meet(carrier, path)
        with pytest.raises(CompletionTimeout, match=r"cfg read 0 .* not complete after 50 ms"):
            await Above(carrier, timeout_ns=50_000_000).read()
    run(tmp_path, work)


def test_a_completion_that_nobody_waits_for_is_an_error(tmp_path):
    async def work(carrier, path):
        simulation = await meet(carrier, path)
        Above(carrier)
        simulation.send(TLP, COMPLETION + bytes(4))
        await settle(lambda: carrier.edge.tlps_received == 1)
        with pytest.raises(RuntimeError, match="unexpected completion"):
            while True:
                await carrier.attached()
    run(tmp_path, work)


def test_the_command_names_what_a_simulation_does_wrong(tmp_path, monkeypatch, capsys):
    nothing = images.Images(Path("/bin/true"), [], Path("vmlinuz-0"), Path("i"))
    monkeypatch.setattr(images, "get", lambda: nothing)
    path = tmp_path / "s"

    def wrong():
        while True:
            try:
                simulation = Simulation(path)
                break
            except OSError:
                time.sleep(0.01)
        simulation.send(LINK, b"\1")
        simulation.receive()
        assert simulation.receive() is None

    thread = threading.Thread(target=wrong)
    thread.start()
    status = cli.main(["linux", "--listen", str(path), "--out", str(tmp_path / "out")])
    thread.join()
    said = capsys.readouterr()
    assert status == 1 and not said.err
    assert said.out.splitlines()[-2:] == [
        "FAILED: the first message must be HELLO with 8 bytes, not LINK with 1",
        f"logs: {tmp_path / 'out/failed/listen'}"]
    assert cli.main(["linux", "--listen", str(tmp_path / ("x" * 120)), "--out",
                     str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith("AF_UNIX path too long\n")
