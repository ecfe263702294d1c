"""A guest whose PCIe hierarchy is a simulated system: lets both go on, one for the other."""

import select
import time

import cocotb
from cocotb.triggers import Event, Timer

from ..system import SimulatedSystem
from .guest import Guest, GuestFailed
from .root_port import RootPort
from .vmd import ConfigTarget, MemoryTarget, Vmd

__all__ = ["LinuxHost", "LinuxSystem"]


class LinuxSystem(SimulatedSystem):
    """A simulated system below the root port of a guest.

    Attributes
    ----------
    root : :class:`~dxpu_sim.linux.root_port.RootPort`
    """

    def __init__(self, dut, options, guest: Guest, **arguments):
        self._guest = guest
        super().__init__(dut, options, **arguments)

    def _make_host(self):
        self.root = RootPort(self.mailboxes["host"], self._guest.device.memory,
                             self._guest.interrupt)
        self.root.downs.append(self._host_down)
        self.root.ups.append(self._host_up)

    def _host_down(self):
        """A reset of the bus below the root port takes the whole switch and all GPUs."""
        for name in ("host", *self.names):
            self.checker.fault(name)

    def _originates(self, port, header):
        return self.routes.originates(port, header) or port == "host" and not self.root.up


class LinuxHost:
    """The guest on a system, as a user sees it who has its console.

    While nothing crosses the PCIe ports the simulation goes slowly, so that the guest has the
    processor; an access of the guest, and everything that follows from it, goes as fast as it can.

    Parameters
    ----------
    guest : :class:`~dxpu_sim.linux.guest.Guest`
    system : :class:`LinuxSystem`
    on_wait : function
        Called now and then while the guest runs.
    """

    #: Simulated time between two looks at the guest.
    STEP_NS = 1000
    #: Wall time to wait for the guest in each step: while something crosses the ports, and else.
    BUSY_S, IDLE_S = 0.0, 0.01
    #: Steps after the last TLP that still count as busy.
    SETTLE = 20
    #: Wall time to wait for the next access after one: a scan of the bus makes thousands.
    NEXT_S = 0.0005

    def __init__(self, guest: Guest, system: LinuxSystem, *, on_wait=lambda: None):
        self.guest, self.system = guest, system
        self._on_wait = on_wait
        self._vmd = Vmd()
        self._hurries = 0
        self._answers: list[tuple[Event, list]] = []
        self._stopped = False
        #: Accesses of the guest to the child domain.
        self.accesses = 0
        self._task = cocotb.start_soon(self._run())

    async def _perform(self, access):
        if access.config:
            if access.write:
                self._vmd.config.write(access.address, access.value, access.size)
                return 0
            return self._vmd.config.read(access.address, access.size)
        target, root = self._vmd.target(access.address), self.system.root
        self.accesses += 1
        if isinstance(target, ConfigTarget):
            where = (target.bus, target.device, target.function, target.register, access.size)
            if access.write:
                await root.config_write(*where, access.value)
                return 0
            return await root.config_read(*where)
        if isinstance(target, MemoryTarget):
            if access.write:
                await root.memory_write(target.address, access.size, access.value)
                return 0
            return await root.memory_read(target.address, access.size)
        return (1 << 8 * access.size) - 1

    def _traffic(self):
        return sum(m.tlps_sent + m.tlps_received for m in self.system.mailboxes.values())

    async def _run(self):
        quiet, before, wait = 0, 0, self.IDLE_S
        while not self._stopped:
            ready, _, _ = select.select(self.guest.waits_on(), [], [], wait)
            if self.guest.device in ready:
                try:
                    access = self.guest.device.receive()
                except EOFError:
                    self.guest.check(ended=True)
                if access is not None:
                    self.guest.device.answer(await self._perform(access))
                wait = self.NEXT_S
                continue
            if ready:
                self.guest.poll()
                self._deliver()
            self.guest.check()
            self._on_wait()
            await Timer(self.STEP_NS, "ns")
            now = self._traffic()
            quiet = 0 if now != before else quiet + 1
            before = now
            busy = quiet < self.SETTLE or self._hurries
            wait = self.BUSY_S if busy else self.IDLE_S

    def _deliver(self):
        while self._answers and (answer := self.guest.ended()) is not None:
            event, box = self._answers.pop(0)
            box.append(answer)
            event.set()

    async def boot(self, *, timeout_s: float = 120.0) -> None:
        """Wait for the guest's shell."""
        await self._until(lambda: self.guest.ready, "the guest's shell", timeout_s)

    async def _until(self, condition, what, timeout_s):
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise GuestFailed(f"no {what} after {timeout_s:.0f} s; the guest's last words: "
                                  f"{self.guest.last_words()}")
            await Timer(self.STEP_NS, "ns")

    async def run(self, line: str, *, timeout_s: float = 120.0) -> tuple[str, int]:
        """Output and exit status of a line of shell in the guest."""
        event, box = Event(), []
        self._answers.append((event, box))
        self.guest.begin(line)
        await self._until(lambda: bool(box), f"end of `{line}`", timeout_s)
        return box[0]

    async def say(self, line: str, **options) -> str:
        """Output of a line that must succeed."""
        said, status = await self.run(line, **options)
        if status:
            raise GuestFailed(f"`{line}` ended with status {status}: {said}")
        return said

    async def wait_for(self, line: str, what: str, *, timeout_s: float = 60.0) -> str:
        """Repeat a line until it succeeds; returns its output."""
        end = time.monotonic() + timeout_s
        while True:
            said, status = await self.run(line)
            if not status:
                return said
            if time.monotonic() > end:
                raise GuestFailed(f"not after {timeout_s:.0f} s: {what} (`{line}`: {said})")
            await self.run("sleep 0.2")

    async def hurry(self, work):
        """Await ``work``, which waits for simulated time; that goes as fast as it can meanwhile."""
        self._hurries += 1
        try:
            return await work
        finally:
            self._hurries -= 1

    async def stop(self) -> None:
        """Power the guest off, at once."""
        self._stopped = True
        await self._task
        self.guest.end()
