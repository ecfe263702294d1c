"""Guests whose PCIe hierarchy is a simulated system: lets guests and simulation go on together."""

import select

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import Event, First, SimTimeoutError, Timer, with_timeout

from dxpu_sim.pcie.links import TRAINING_NS
from dxpu_sim.system.system import SimulatedSystem

from .carrier.console import Console
from .carrier.domain import Domain
from .carrier.guest import Guest
from .carrier.root_port import INTERRUPTS, RootPort

__all__ = ["CocotbTasks", "LinuxHost", "LinuxSystem", "Pump"]


class CocotbTasks:
    """:class:`~dxpu_sim.linux.carrier.tasks.Tasks` of a running simulation, in simulated time."""

    def start(self, work):
        cocotb.start_soon(work)

    def queue(self):
        return Queue()

    def event(self):
        return Event()

    async def sleep(self, ns):
        await Timer(ns, "ns")

    async def wait(self, event, ns):
        try:
            await with_timeout(event.wait(), ns, "ns")
        except SimTimeoutError:
            return False
        return True


class LinuxSystem(SimulatedSystem):
    """A simulated system below the root ports of guests, one for each host proxy.

    Attributes
    ----------
    roots : list of :class:`~dxpu_sim.linux.carrier.root_port.RootPort`
    """

    def __init__(self, dut, options, guests: list[Guest], **arguments):
        self._guests = guests
        super().__init__(dut, options, **arguments)

    def _make_host(self):
        self.roots = []
        for n, guest in enumerate(self._guests):
            root = RootPort(self.mailboxes[self.host_names[n]], guest.device.memory,
                            guest.interrupt, CocotbTasks(), training_ns=TRAINING_NS)
            root.downs.append(lambda n=n: self._host_down(n))
            root.ups.append(lambda n=n: self._host_up(n))
            self.roots.append(root)

    def _interrupts(self, host):
        return INTERRUPTS

    def _host_down(self, n):
        """A reset of the bus below the root port resets the whole switch and all its GPUs."""
        for name in (self.host_names[n], *self.host_routes[n].slots.values()):
            self.checker.fault(name)

    def _host_up(self, n=0):
        self.checker.reborn(self.host_names[n])
        self.checker.mended(self.host_names[n])
        self.host_routes[n].reset()

    def _link_is_up(self, host):
        return self.roots[self.host_names.index(host)].up


class LinuxHost(Console):
    """A guest on a host proxy of a system, as seen by a user of its console.

    Parameters
    ----------
    guest : :class:`~dxpu_sim.linux.carrier.guest.Guest`
    system : :class:`LinuxSystem`
    number : int
        Number of the host proxy.
    """

    def __init__(self, guest: Guest, system: LinuxSystem, number: int = 0):
        super().__init__(guest, self._step)
        self.system = system
        self.number, self.root = number, system.roots[number]
        self._domain = Domain(self.root)
        #: An access is being simulated.
        self.serving = False
        #: Set by :class:`Pump`.
        self.pump: Pump

    @staticmethod
    async def _step():
        await Timer(Pump.STEP_NS, "ns")

    @property
    def accesses(self) -> int:
        """Number of accesses of the guest to the child domain."""
        return self._domain.accesses

    async def _serve(self, access):
        self.guest.device.answer(await self._domain.perform(access))
        self.serving = False
        self.pump.served.set()

    def waits_on(self) -> list:
        """Objects for ``select``."""
        device, *others = self.guest.waits_on()
        return others if self.serving else [device, *others]

    def take(self, ready: list) -> None:
        """Handle the objects that are ``ready``: begin an access, read the guest's output."""
        if self.guest.device in ready:
            try:
                access = self.guest.device.receive()
            except EOFError:
                self.guest.check(ended=True)
            if access is not None:
                self.serving = True
                cocotb.start_soon(self._serve(access))
        self.read()

    async def hurry(self, work):
        """Await ``work``, which waits for simulated time; the simulation runs at full speed
        meanwhile."""
        return await self.pump.hurry(work)


class Pump:
    """Lets guests and simulation go on together.

    Without traffic at the PCIe ports the simulation runs slowly, so that the guests get the
    processor. During a guest's access, with all its consequences, the simulation runs at full
    speed.

    Parameters
    ----------
    hosts : list of :class:`LinuxHost`
    on_wait : function
        Called from time to time while the guests run.
    """

    #: Simulated time between two checks of the guests.
    STEP_NS = 1000
    #: Wall time to wait for guests in each idle step.
    IDLE_S = 0.01
    #: Steps after the last TLP that still count as busy.
    SETTLE = 20
    #: Wall time to wait for the next access after an access: a bus scan makes thousands of
    #: accesses.
    NEXT_S = 0.0005

    def __init__(self, hosts: list[LinuxHost], *, on_wait=lambda: None):
        self._hosts, self._on_wait = hosts, on_wait
        self._system = hosts[0].system
        self._hurries = 0
        self._stopped = False
        #: Set when an access of a guest has been answered.
        self.served = Event()
        for host in hosts:
            host.pump = self
        self._task = cocotb.start_soon(self._run())

    def _traffic(self):
        return sum(m.tlps_sent + m.tlps_received for m in self._system.mailboxes.values())

    async def _run(self):
        quiet, before, wait = 0, 0, self.IDLE_S
        while not self._stopped:
            waited = [w for host in self._hosts for w in host.waits_on()]
            ready, _, _ = select.select(waited, [], [], wait)
            for host in self._hosts:
                host.take(ready)
            self._on_wait()
            self.served.clear()
            await First(Timer(self.STEP_NS, "ns"), self.served.wait())
            serving = any(host.serving for host in self._hosts)
            if self.served.is_set():
                wait = 0 if serving else self.NEXT_S
                continue
            now = self._traffic()
            quiet = 0 if now != before else quiet + 1
            before = now
            busy = serving or quiet < self.SETTLE or self._hurries
            wait = 0 if busy else self.IDLE_S

    async def hurry(self, work):
        """Await ``work`` at full speed, see :meth:`LinuxHost.hurry`."""
        self._hurries += 1
        try:
            return await work
        finally:
            self._hurries -= 1

    async def stop(self) -> None:
        """Power the guests off, at once."""
        self._stopped = True
        await self._task
        for host in self._hosts:
            host.guest.end()
