"""Actions of the operator of a simulated system, and of people at its boxes."""

from cocotb.utils import get_sim_time

from dxpu_sim.pcie.checkers import CheckFailed

from .setup import bind, unbind, wait_for_slot

__all__ = ["FrameOperator", "Operator"]


class Operator:
    """Binds and releases GPUs, pulls them and puts them back.

    Parameters
    ----------
    system : :class:`~dxpu_sim.system.system.SimulatedSystem`
    paths : int
        Mask of paths for bindings.
    host : int
        Number of the host to which GPUs are bound.

    Attributes
    ----------
    proxy : :class:`~dxpu_sim.system.setup.Proxy`
        Proxy of that host.
    routes : :class:`~dxpu_sim.pcie.switch_route.SwitchRoute`
        Routes of that host's switch.
    operation : int
        Number of the newest operation, also used as generation.
    committed_ns : float
        Time of the commit of the newest binding.
    """

    def __init__(self, system, *, paths=0b01, host=0):
        self.system = system
        self.paths = paths
        self.proxy, self.routes = system.hosts[host], system.host_routes[host]
        self.operation = 0
        self.committed_ns = 0.0

    def place(self, gpu):
        """Proxy of the box, and slot, of a GPU."""
        box, slot = self.system.slots[gpu]
        return self.system.boxes[box], slot

    def route(self, gpu, port):
        """Tell the checkers which switch a GPU belongs to from now on."""
        name = self.system.names[gpu]
        for routes in self.system.host_routes:
            routes.slots = {n: other for n, other in routes.slots.items() if other != name}
            routes.renumber()
        self.routes.slots[port] = name
        self.routes.renumber()

    async def commit(self, gpu, port):
        """Bind a GPU to a port, without waiting."""
        box, slot = self.place(gpu)
        self.route(gpu, port)
        self.operation += 1
        await bind(self.proxy, port, box, slot, generation=self.operation,
                   operation_id=self.operation, paths=self.paths)
        self.committed_ns = get_sim_time("ns")

    async def release(self, gpu, port=None):
        """Release both rows, also during traffic."""
        port = gpu if port is None else port
        self.operation += 1
        self.fault(gpu)
        await unbind(self.proxy, port, *self.place(gpu), generation=self.operation,
                     operation_id=self.operation)

    async def wait_for_slot(self, port, **options):
        """Wait for the state of a port; see :func:`~.setup.wait_for_slot`."""
        await wait_for_slot(self.proxy, port, **options)

    def fault(self, gpu):
        """Allow the loss of TLPs to and from the GPU from now on."""
        self.system.checker.fault(self.system.names[gpu])

    async def _tell_presence(self, box, *, without=()):
        there = sum(1 << slot - 1 for n, (b, slot) in enumerate(self.system.slots)
                    if self.system.boxes[b] is box and n not in without)
        await box.write("control.present", slots=there)

    async def pull(self, gpu):
        """Pull the GPU from its box."""
        self.fault(gpu)
        self.system.links[gpu].pull()
        await self._tell_presence(self.place(gpu)[0], without=(gpu,))

    async def put_back(self, gpu):
        """Put the GPU into its box again."""
        await self.system.links[gpu].put_back()
        await self._tell_presence(self.place(gpu)[0])


class FrameOperator(Operator):
    """Has a manager's program do the binding, by frames, and touches no register.

    Parameters
    ----------
    system : :class:`~dxpu_sim.system.system.SimulatedSystem`
        With one host.
    manager : :class:`~dxpu_sim.system.network.ManagerProcess`
    """

    def __init__(self, system, manager):
        super().__init__(system)
        self.manager = manager

    async def set_up(self):
        """Numbers, keys and sessions, which :meth:`SimulatedSystem.prepare` brings otherwise."""
        found = await self.manager.say(f"pool {len(self.system.hosts + self.system.boxes)}")
        if found.split() != [str(box.node) for box in self.system.boxes]:
            raise CheckFailed(f"the manager found boxes {found}")

    async def commit(self, gpu, port):
        """Bind a GPU to a port; the link is up then.

        The host may use the GPU before the manager knows that the link is up.
        """
        box, slot = self.place(gpu)
        self.route(gpu, port)
        self.fault(gpu)
        self.routes.present.add(port)
        await self.manager.say(f"attach {port} {box.node} {slot}")
        self.system.checker.mended(self.system.names[gpu])
        self.committed_ns = get_sim_time("ns")

    async def release(self, gpu, port=None):
        """Release both rows; nothing is under way then."""
        self.fault(gpu)
        await self.manager.say(f"detach {gpu if port is None else port}")

    async def wait_for_slot(self, port, *, timeout_us=200, **wanted):
        """Wait for the state of a port; the manager has a time-out of its own."""
        await self.manager.say(
            f"wait {port} " + " ".join(f"{name}={value}" for name, value in wanted.items()))
