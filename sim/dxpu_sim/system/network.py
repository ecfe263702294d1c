"""Managers of a simulated system, as processes.

In a network of their own::

    manager ── manager0 ════ fabric0 ── Ethernet port of the system ── hosts and boxes

The process is started in a new network namespace, makes a pair of veth there, and hands the socket
of ``fabric0`` to the simulation. So the simulation needs no rights, and no interface of this
machine has any part.

Where this machine permits no such network, the simulation listens on a UNIX socket, with a frame in
each packet::

    manager ── socket ── Ethernet port of the system ── hosts and boxes
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from dxpu_host import EthernetPort
from dxpu_sim.ethernet.frame_socket import FrameSocket
from dxpu_sim.ethernet.namespace import UNSHARE, add_pair
from dxpu_sim.pcie.ports import Mailbox

__all__ = ["MANAGER_INTERFACE", "PROGRAM", "ManagerFailed", "ManagerProcess", "NetworkProcess"]

MANAGER_INTERFACE, FABRIC_INTERFACE = "manager0", "fabric0"
#: A manager that takes commands, with time-outs for a simulation.
PROGRAM = (sys.executable, "-m", "dxpu_sim.system.manager_program", MANAGER_INTERFACE, "200")
#: Frames of the system are for nodes with any number; a veth delivers all of them.
_ANY_NODE = 0xFFE


class ManagerFailed(Exception):
    """The manager refused a command, or ended; the message gives its words."""


class NetworkProcess:
    """A program on :data:`MANAGER_INTERFACE`, or at a UNIX socket. Frames are carried in both
    directions until :meth:`end`.

    Parameters
    ----------
    dut : cocotb handle
        A :class:`~.design.System`.
    command : sequence of str
        The program.
    folder : Path
        Where the program runs; its standard error goes to ``manager.err``.
    mailbox : Mailbox or None
        Ethernet port of the design; given where another process has had it before.
    at : str
        Name of the socket in ``folder``; empty: the program has the interface.

    Raises
    ------
    ManagerFailed
        If there is no network for the process.
    """

    #: Interval at which the simulation looks for frames and answers.
    POLL_NS = 2000
    #: Wall time for a command.
    PATIENCE_S = 540

    def __init__(self, dut, command, folder: Path, mailbox: Mailbox | None = None, *,
                 at: str = ""):
        self._folder, self._errors = Path(folder), Path(folder, "manager.err")
        self._said = b""
        if at:
            self._port = FrameSocket(self._folder / at)
            self._start(command)
        else:
            self._port = EthernetPort.handed(FABRIC_INTERFACE, self._start_in_network(command))
        self._mailbox = mailbox or Mailbox(dut, "intruder")
        self._mailbox.received.append(self._send)
        self._carry = cocotb.start_soon(self._carry_in())

    def _start(self, command, **options):
        with open(self._errors, "a") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                cwd=self._folder, **options)
        os.set_blocking(self._process.stdout.fileno(), False)

    def _start_in_network(self, command):
        """Start the program behind a pair of veth; returns the handle of the other end's port."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                self._start([*UNSHARE, sys.executable, "-m", __name__, str(theirs.fileno()),
                             *command], pass_fds=[theirs.fileno()])
            _, handed, _, _ = socket.recv_fds(ours, 1, 1)
        if not handed:
            self._process.wait()
            raise self.ended()
        return handed[0]

    def ended(self) -> ManagerFailed | None:
        """Why the program has ended; ``None`` while it goes on."""
        if self._process.poll() is None:
            return None
        words = self._errors.read_text().strip().splitlines() or ["no word of why"]
        return ManagerFailed(f"the manager has ended with {self._process.returncode}: {words[-1]}")

    def _send(self, record):
        if not record.discard:
            self._port.send(record.raw)

    async def _carry_in(self):
        while True:
            await Timer(self.POLL_NS, "ns")
            while (frame := self._port.receive()) is not None:
                await self._mailbox.send(frame)

    async def line(self, what: str, *, at_once: bool = False) -> str:
        """The next line of the program; ``what`` it is about is for messages.

        ``at_once``: no simulated time passes meanwhile.
        """
        begin = time.monotonic()
        while b"\n" not in self._said:
            if failure := self.ended():
                raise failure
            if time.monotonic() > begin + self.PATIENCE_S:
                raise ManagerFailed(f"the manager does not answer to `{what}`")
            if at_once:
                time.sleep(0.01)
            else:
                await Timer(self.POLL_NS, "ns")
            self._said += self._process.stdout.read() or b""
        answer, _, self._said = self._said.partition(b"\n")
        return answer.decode()

    def end(self) -> None:
        """End the process, and carry no more frames; nodes go on speaking."""
        self._carry.cancel()
        self._mailbox.received.remove(self._send)
        self._process.kill()
        self._process.communicate()
        self._port.close()


class ManagerProcess(NetworkProcess):
    """A program that answers each line with one line, ``done`` or ``failed`` first (see
    :mod:`.manager_program`)."""

    async def say(self, line: str) -> str:
        """The answer to a line, without ``done``; raises :exc:`ManagerFailed`."""
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.ended() or ManagerFailed("the manager takes no command any more") from None
        answer = await self.line(line)
        verdict, _, words = answer.partition(" ")
        if verdict != "done":
            raise ManagerFailed(f"the manager, to `{line}`: {words}")
        return words


def main(handle: str, *command: str) -> None:
    """Make the interfaces, hand one's socket over ``handle``, and become the program."""
    add_pair(MANAGER_INTERFACE, FABRIC_INTERFACE)
    port = EthernetPort(FABRIC_INTERFACE, _ANY_NODE)
    with socket.socket(fileno=int(handle)) as there:
        socket.send_fds(there, [b"\0"], [port.fileno()])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
