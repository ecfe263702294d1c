"""Runs QEMU: starts it, gives its shell lines to run, brings interrupts, ends it."""

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

#: Kernel command line: hot-plug, AER and DPC are the kernel's, windows are left for GPUs to come.
COMMAND_LINE = ("console=ttyS0 panic=-1 pcie_ports=native "
                "pci=realloc,hpmmiosize=24M,hpmmioprefsize=2M,hpiosize=0")


#: How many may want a processor before a guest that is late may have had too little of it.
BUSY = 2.0


class GuestFailed(Exception):
    """The guest or QEMU ended, or a line failed in the guest; the message says which."""


class GuestStalled(GuestFailed):
    """Something took too long on a machine that had no time for the guest, so that nothing is known
    about the design; the message says what."""


def busy() -> float:
    """How many want a processor of this machine, for each that it has; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Guest:
    """A virtual machine whose PCI device at 00:05.0 is ours.

    Parameters
    ----------
    images : :class:`~dxpu_sim.linux.images.Images`
    folder : path
        Sockets, the console (``console.log``) and QEMU's own words (``qemu.log``) go here.
    options : str
        Further words of the kernel's command line.
    memory_mib : int
    number : int
        Of several guests in one folder; part of the names of files if it is not 0.

    Attributes
    ----------
    device : :class:`~dxpu_sim.linux.remote.RemoteDevice`
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
        self._lines: deque[str] = deque()
        self._partial = ""
        self._ends: list[tuple[list[str], int]] = []
        self._said: list[str] = []
        # QEMU gets ends of socket pairs, so there are no names to clash or to be left over.
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
        """What to wait for with ``select``: the device, the shell, interrupts' answers."""
        return [self.device, self._shell, self._test]

    def check(self, ended: bool = False) -> None:
        """Raises :exc:`GuestFailed` if QEMU has ended, or has closed its end of a socket."""
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
        """The error that something did not come in time; whether it is the guest's fault is for its
        console and the machine to say."""
        text = f"{what}; the guest's last words: {self.last_words()}"
        if found := stalls(self.console.read_text(errors="replace")
                           if self.console.exists() else ""):
            return GuestStalled(f"{text}; it had no processor: {found[-1]}")
        if (load := busy()) > BUSY:
            return GuestStalled(f"{text}; {load:.1f} wanted each processor of this machine")
        return GuestFailed(text)

    def interrupt(self, address: int, data: int) -> None:
        """A write to the interrupt range, as of MSI. Does not wait until it is done."""
        self._test.send(f"writel {address:#x} {data:#x}\n".encode())

    def poll(self) -> None:
        """Read what the shell and QEMU have said."""
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
            elif match := re.fullmatch(r"(.*)@end (\d+)", line):
                if match[1]:
                    self._said.append(match[1])
                self._ends.append((self._said, int(match[2])))
                self._said = []
            else:
                self._said.append(line)

    def begin(self, line: str) -> None:
        """Let the guest's shell run a line, which must not have a line break."""
        if "\n" in line:
            raise ValueError(f"one line, not {line!r}")
        self._shell.setblocking(True)
        self._shell.sendall(line.encode() + b"\n")
        self._shell.setblocking(False)

    def ended(self) -> tuple[str, int] | None:
        """Output and exit status of the oldest line that has ended; ``None`` if there is none."""
        if not self._ends:
            return None
        said, status = self._ends.pop(0)
        return "\n".join(said), status

    def end(self) -> None:
        """Stop QEMU, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.device.close()
        for s in (self._shell, self._test):
            s.close()


