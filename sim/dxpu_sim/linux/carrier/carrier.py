"""Boots a kernel, and puts what connects to a socket below it."""

import asyncio
import time
from pathlib import Path

from . import images as all_images
from .console import Console
from .domain import Domain
from .edge import Edge, EdgeError
from .guest import Guest
from .images import Images
from .root_port import RootPort
from .tasks import AsyncioTasks

__all__ = ["Carrier"]

#: Name of the root port in the guest, which is alone on bus 0 of the domain.
_ROOT = "/sys/bus/pci/devices/10000:00:00.0"


class Carrier:
    """A guest whose PCIe link is a UNIX socket; an asynchronous context manager.

    An error of the simulation, of QEMU or of the guest is raised by whatever is awaited at that
    time.

    Parameters
    ----------
    socket : path
        Where to listen. One simulation may connect; a second connection is closed at once.
    folder : path
        Folder for ``console.log`` and ``qemu.log``.
    images : :class:`~dxpu_sim.linux.carrier.images.Images`, optional
        QEMU, kernel and programs; by default those of Debian's packages.
    options : str
        Further words of the kernel's command line.
    timeout_s : float
        Time on the wall within which a request must be completed, and within which a simulation
        that has connected must say HELLO.

    Attributes
    ----------
    edge : :class:`.Edge`
        The connection.
    root : :class:`~dxpu_sim.linux.carrier.root_port.RootPort`
        The port above the link; its ``counts`` say what has passed.
    """

    #: Wall time between two looks at the guest's output.
    PAUSE_S = 0.005

    edge: Edge
    root: RootPort

    def __init__(self, socket: Path, folder: Path, *, images: Images | None = None,
                 options: str = "", timeout_s: float = 60.0):
        self._path, self._folder = Path(socket), Path(folder)
        self._images, self._options, self._timeout_s = images, options, timeout_s
        self._failure: BaseException | None = None
        self._tasks = AsyncioTasks(self._failed)
        self._connected = False
        self._guest: Guest | None = None
        self._console: Console | None = None
        self._serving = False

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._connect, self._path)
        return self

    async def __aexit__(self, *_):
        self._tasks.end()
        if self._guest is not None:
            asyncio.get_running_loop().remove_reader(self._guest.device)
            self._guest.end()
        if self._connected:
            self.edge.close()
        self._server.close()
        self._path.unlink(missing_ok=True)

    def _failed(self, error):
        self._failure = self._failure or error

    async def _connect(self, reader, writer):
        if self._connected:
            writer.close()
            return
        self._connected = True
        self.edge = Edge(reader, writer)
        self._tasks.start(self._attend())

    async def _attend(self):
        try:
            await asyncio.wait_for(self.edge.greet(), self._timeout_s)
        except TimeoutError:
            raise EdgeError(f"no HELLO within {self._timeout_s:g} s") from None
        await self.edge.run()

    async def _pause(self):
        if self._failure is not None:
            raise self._failure
        if self._console is not None:
            self._console.read()
        await asyncio.sleep(self.PAUSE_S)

    async def attached(self, *, timeout_s: float = 60.0) -> None:
        """Wait until a simulation has connected and its link is up.

        Raises
        ------
        EdgeError
        """
        begin = time.monotonic()
        await self._pause()
        while not (self._connected and self.edge.up):
            if time.monotonic() > begin + timeout_s:
                what = ("simulation" if not self._connected
                        else "LINK 0 after RESET 1" if self.edge.reset_unanswered else "link")
                raise EdgeError(f"no {what} at {self._path} within {timeout_s:g} s")
            await self._pause()

    async def boot(self, *, timeout_s: float = 120.0) -> Console:
        """Start QEMU, and let the kernel enumerate what is :meth:`attached`; returns the guest's
        shell.

        Raises
        ------
        EdgeError, GuestFailed, GuestStalled, ImagesMissing, CompletionTimeout
        """
        images = self._images or await asyncio.to_thread(all_images.get)
        self._guest = guest = Guest(images, self._folder, options=self._options)
        self.root = RootPort(self.edge, guest.device.memory, guest.interrupt, self._tasks,
                             timeout_ns=round(self._timeout_s * 1e9))
        self.root.partner(self.edge.up)
        self.edge.changed.append(self.root.partner)
        self._domain = Domain(self.root)
        self._console = console = Console(guest, self._pause)
        self._listen()
        await console.boot(timeout_s=timeout_s)
        await console.say("insmod /vmd.ko", timeout_s=timeout_s)
        await console.wait_for(f"test -e {_ROOT}", "a PCI domain", timeout_s=timeout_s)
        await self.attached(timeout_s=self._timeout_s)  # the driver of the VMD has made a reset
        return console

    def _listen(self):
        asyncio.get_running_loop().add_reader(self._guest.device, self._take)

    def _take(self):
        """Begin the access that QEMU has sent; the next one waits for its end."""
        try:
            access = self._guest.device.receive()
            if access is not None:
                asyncio.get_running_loop().remove_reader(self._guest.device)
                self._tasks.start(self._serve(access))
        except EOFError:
            self._end_listening()
            try:
                self._guest.check(ended=True)
            except Exception as error:
                self._failed(error)
        except Exception as error:
            self._end_listening()
            self._failed(error)

    def _end_listening(self):
        asyncio.get_running_loop().remove_reader(self._guest.device)

    async def _serve(self, access):
        self._guest.device.answer(await self._domain.perform(access))
        self._listen()
