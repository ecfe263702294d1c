"""QEMU: start, shell commands, interrupts, end."""

import os
import re
import socket
import subprocess
from collections import deque
from pathlib import Path

from dxpu_sim.run.pulse import end_with_parent

from .complaints import stalls
from .images import Images
from .remote import RemoteDevice

__all__ = ["Guest", "GuestFailed", "GuestStalled", "busy"]

#: Kernel command line: the kernel handles hot-plug, AER and DPC, and leaves windows for later GPUs.
COMMAND_LINE = ("console=ttyS0 panic=-1 pcie_ports=native "
                "pci=realloc,hpmmiosize=24M,hpmmioprefsize=2M,hpiosize=0")


#: Load per processor from which a late guest may have had too little processor time.
BUSY = 2.0


class GuestFailed(Exception):
    """The guest or QEMU ended, or a shell command failed in the guest; the message gives
    details."""


class GuestStalled(GuestFailed):
    """A wait took too long on a busy machine, so there is no verdict on the design.

    The message names the wait.
    """


def busy() -> float:
    """Load of this machine per processor; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Guest:
    """A virtual machine whose PCI device at 00:05.0 is simulated.

    Parameters
    ----------
    images : :class:`~dxpu_sim.linux.carrier.images.Images`
    folder : path
        Folder for sockets, the console (``console.log``) and the output of QEMU (``qemu.log``).
    options : str
        Further words of the kernel's command line.
    memory_mib : int
    number : int
        Number among several guests in one folder; part of file names if not 0.

    Attributes
    ----------
    device : :class:`~dxpu_sim.linux.carrier.remote.RemoteDevice`
        Waits for the guest's accesses.
    ready : bool
        The guest's shell has come up.
    """

    def __init__(self, images: Images, folder: Path, *, options: str = "", memory_mib: int = 256,
                 number: int = 0):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.device = RemoteDevice(ours)
        self.ready = False
        self.console = folder / f"console{number or ''}.log"
        self.output = folder / f"qemu{number or ''}.log"
        self._partial = ""
        self._ends: list[tuple[list[str], int]] = []
        self._begun: deque[str] = deque()  # lines that have not ended
        self._said: list[str] = []
        # QEMU gets ends of socket pairs, so no names can clash or be left over.
        shell, shell_theirs = socket.socketpair()
        self._test, test_theirs = socket.socketpair()
        self._shell = shell
        passed = [theirs, shell_theirs, test_theirs]
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [images.qemu, *images.arguments, "-nodefaults", "-display", "none", "-no-reboot",
                 "-machine", "q35,memory-backend=ram", "-accel", "tcg", "-cpu", "max",
                 "-m", f"{memory_mib}M",
                 "-object", f"memory-backend-memfd,id=ram,size={memory_mib}M,share=on",
                 "-kernel", images.kernel, "-initrd", images.initramfs,
                 "-append", f"{COMMAND_LINE} {options}".strip(),
                 "-serial", f"file:{self.console}",
                 "-chardev", f"socket,id=shell,fd={shell_theirs.fileno()}",
                 "-serial", "chardev:shell",
                 "-chardev", f"socket,id=test,fd={test_theirs.fileno()}",
                 "-object", "qtest,id=interrupts,chardev=test",
                 "-device", f"x-pci-proxy-dev,id=vmd0,fd={theirs.fileno()},addr=0x5"],
                pass_fds=[s.fileno() for s in passed], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=images.environment,
                preexec_fn=end_with_parent)
        for s in passed:
            s.close()
        self._shell.setblocking(False)
        self._test.setblocking(False)

    def waits_on(self):
        """Objects for ``select``: the device, the shell, answers to interrupts."""
        return [self.device, self._shell, self._test]

    def check(self, ended: bool = False) -> None:
        """Raise :exc:`GuestFailed` if QEMU has ended, or has closed its end of a socket."""
        if ended or self.process.poll() is not None:
            self.process.wait()
            words = self.output.read_text(errors="replace").strip() or "it said nothing"
            raise GuestFailed(f"QEMU ended with status {self.process.returncode}: {words}; the "
                              f"guest's last words: {self.last_words()}")

    def last_words(self, lines: int = 3) -> str:
        """The end of the console."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return " / ".join(text.strip().splitlines()[-lines:]) or "none"

    def late(self, what: str) -> GuestFailed:
        """Error for a wait that took too long.

        The guest's console and the load of the machine decide whether the guest is to blame.
        """
        text = f"{what}; the guest's last words: {self.last_words()}"
        if found := stalls(self.console.read_text(errors="replace")
                           if self.console.exists() else ""):
            return GuestStalled(f"{text}; it had no processor: {found[-1]}")
        if (load := busy()) > BUSY:
            return GuestStalled(f"{text}; {load:.1f} wanted each processor of this machine")
        return GuestFailed(text)

    def interrupt(self, address: int, data: int) -> None:
        """Write to the interrupt range, as an MSI does; returns at once."""
        self._test.send(f"writel {address:#x} {data:#x}\n".encode())

    def poll(self) -> None:
        """Read the output of the shell and of QEMU."""
        for s in (self._shell, self._test):
            try:
                data = s.recv(1 << 16)
            except BlockingIOError:
                continue
            if s is self._shell:
                self._partial += data.decode(errors="replace")
        *lines, self._partial = self._partial.split("\n")
        for line in (line.rstrip("\r") for line in lines):
            if line == "@ready":
                self.ready = True
            elif line == "@again":
                self._send(self._begun[0])
            elif match := re.fullmatch(r"(.*)@end (\d+)", line):
                if match[1]:
                    self._said.append(match[1])
                self._begun.popleft()
                self._ends.append((self._said, int(match[2])))
                self._said = []
            else:
                self._said.append(line)

    def begin(self, line: str) -> None:
        """Let the guest's shell run a line, which must not contain a line break, nor begin or end
        with a space. Lines that wait for another one may be run in any order."""
        if "\n" in line or line != line.strip():
            raise ValueError(f"one line without spaces around it, not {line!r}")
        self._begun.append(line)
        self._send(line)

    def _send(self, line):
        """With its length, by which the guest knows that it has all of it."""
        self._shell.setblocking(True)
        self._shell.sendall(f"{len(line)} {line}\n".encode())
        self._shell.setblocking(False)

    def ended(self) -> tuple[str, int] | None:
        """Output and exit status of the oldest finished line; ``None`` if there is none."""
        if not self._ends:
            return None
        said, status = self._ends.pop(0)
        return "\n".join(said), status

    def end(self) -> None:
        """Kill QEMU."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.device.close()
        for s in (self._shell, self._test):
            s.close()


