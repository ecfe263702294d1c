"""The manager of a pool: fulfils wishes, and keeps the nodes as the records say.

A wish is in the records before any node is told, so a manager goes on where the former manager was
interrupted. Tasks are carried out in :mod:`.driver`, nodes are looked at in :mod:`.looks`.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dxpu_manage import Identity

from .allocation import Kind
from .background import Background
from .driver import Driver
from .errors import Conflict, Impossible
from .evidence import Verdict
from .lifecycle import Cause, State
from .limits import Limits
from .looks import Looks
from .nodes import Nodes
from .paths import Routing
from .pool import Pool
from .records import Binding, Gpu, Job, Node, Pair, Phase, Progress, Request, Role, Task, gpu_id
from .words import Words

__all__ = ["PoolManager"]

_LOG = logging.getLogger("dxpu_manager")


class PoolManager:
    """A manager of a pool; a context of :mod:`asyncio`.

    On entry, interrupted tasks go on; :meth:`look_at_all` finds out how the nodes are.

    Parameters
    ----------
    pool : Pool
    nodes : Nodes
    limits : Limits

    Attributes
    ----------
    down : dict of str
        Nodes without an answer lately, by serial number, and why.
    strangers : dict of str
        Nodes with announcements that were not taken in, by factory address, and why.
    deposed : asyncio.Event
        Set when another manager has taken over: nothing is done any more.
    """

    def __init__(self, pool: Pool, nodes: Nodes, limits: Limits = Limits()) -> None:
        self.pool, self.nodes, self.limits = pool, nodes, limits
        self._background = background = Background(pool)
        self._driver = Driver(pool, nodes, limits, background)
        self._looks = Looks(pool, nodes, limits, self._driver, background)
        self._words = Words(pool, nodes)
        self.deposed: asyncio.Event = background.deposed
        self.down, self.strangers = self._looks.down, self._looks.strangers

    @property
    def dropped(self) -> int:
        """Strangers that were forgotten, as there were too many."""
        return self._looks.dropped

    async def __aenter__(self) -> "PoolManager":
        self.nodes.manager.may_send = self.pool.store.leads
        self.nodes.outranked = self._outrank
        self._background.begin(self._background.until_lost())
        for task in list(self.pool.all(Task)):
            if not task.progress.ended:
                self._driver.drive(task.number)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._background.close()

    async def _outrank(self, node: Node, epoch: int) -> None:
        """Go on above an epoch that no manager before had, as the records say."""
        store, fabric = self.pool.store, self.nodes.manager
        before = fabric.epoch
        await store.outrank(epoch)
        fabric.epoch = store.epoch
        _LOG.warning("%s %s had epoch %d before this manager, of epoch %d, told it anything: the "
                     "store was restored, or a manager with another store has this node; the epoch "
                     "is %d from now on", node.role, node.name, epoch, before, store.epoch)

    # Wishes -------------------------------------------------------------------------------------

    def attach(self, host: int, gpus: Iterable[str], *, request: Request | None = None) -> Task:
        """Give GPUs to a host, all or none; for a ``request``, which has begun then.

        Raises
        ------
        NotFound, Conflict, Impossible, StoreError, Deposed
        """
        pool, wanted = self.pool, tuple(gpus)
        node = self._host(host)
        if not wanted or len(set(wanted)) != len(wanted):
            raise Impossible("name one GPU at least, and each once")
        if node.closed:
            raise Conflict(f"host {node.name} is closed: open it first")
        taken = pool.bound_to(host)
        ports = [port for port in range(node.rows) if port not in taken]
        if len(ports) < len(wanted):
            raise Conflict(f"host {node.name} has {len(ports)} of {node.rows} ports left, and "
                           f"{len(wanted)} are needed")
        now = pool.clock()
        routing = Routing(pool, node, request.wish.path if request else None)
        with pool.change() as change:
            task = self._driver.new(change, Job.ATTACH, wanted, host, now + self.limits.attach)
            for name, port in zip(wanted, ports, strict=False):
                gpu = pool.gpu(name)
                if pool.node(gpu.box).closed:
                    raise Conflict(f"box {gpu.box:08x} is closed: open it first")
                if gpu.task:
                    raise Conflict(f"GPU {name} is in the hands of task {gpu.task}")
                if gpu.request and (request is None or gpu.request != request.number):
                    raise Conflict(f"GPU {name} is kept for request {gpu.request}")
                generation = gpu.generation + 1 & 0xFFFF
                path_mask = 1 << routing.take(pool.node(gpu.box))
                change.move(name, Cause.ATTACH, task=task.number, generation=generation,
                            request=request.number if request else 0, broken="",
                            binding=Binding(host, port, generation, path_mask))
                if pool.pair(host, gpu.box) is None:
                    change.put(Pair(host, gpu.box, secrets.token_hex(16)),
                               f"host {node.name} and box {gpu.box:08x} have a key")
            if request is not None:
                change.put(replace(request, phase=Phase.STARTING, task=task.number),
                           f"request {request.number} gets {', '.join(wanted)}")
        self._driver.drive(task.number)
        return task

    def detach(self, gpus: Iterable[str], *, force: bool = False, broken: str = "") -> Task:
        """Take GPUs from a host: with the consent of the operating system there, or by force.

        Parameters
        ----------
        gpus : iterable of str
        force : bool
        broken : str
            What is wrong with the GPUs, if they are failed afterwards; by force only.

        Raises
        ------
        NotFound, Conflict, Impossible, StoreError, Deposed
        """
        pool, wanted = self.pool, tuple(gpus)
        if not wanted or len(set(wanted)) != len(wanted):
            raise Impossible("name one GPU at least, and each once")
        hosts = set()
        for name in wanted:
            gpu = pool.gpu(name)
            if gpu.state is not State.ATTACHED or gpu.binding is None:
                raise Conflict(f"GPU {name} is {gpu.state}, not attached")
            if gpu.task:
                raise Conflict(f"GPU {name} is in the hands of task {gpu.task}")
            hosts.add(gpu.binding.host)
        if len(hosts) > 1:
            raise Impossible("these GPUs are of several hosts: detach those of one at a time")
        with pool.change() as change:
            task = self._driver.new(change, Job.DETACH, wanted, hosts.pop(),
                                  pool.clock() + self.limits.consent, force=force)
            for name in wanted:
                if force:
                    change.leaves(name, task=task.number, broken=broken)
                else:
                    change.put(replace(pool.gpu(name), task=task.number),
                               f"GPU {name}: its host is asked to let go")
        self._driver.drive(task.number)
        return task

    def cancel(self, number: int) -> None:
        """Give up a task, and roll back all steps so far.

        Raises
        ------
        NotFound, Conflict
        """
        task = self.pool.task(number)
        if task.progress is not Progress.RUNNING:
            raise Conflict(f"task {number} is {task.progress}")
        if any(self.pool.gpu(name).state is State.DRAINING for name in task.gpus):
            raise Conflict(f"task {number} takes GPUs away already: attach them again afterwards")
        with self.pool.change() as change:
            change.put(replace(task, cancelled=True), f"task {number} is cancelled")

    def admit(self, name: str) -> Gpu:
        """Let a quarantined GPU be given away.

        Raises
        ------
        NotFound, Conflict, StoreError, Deposed
        """
        with self.pool.change() as change:
            return change.move(name, Cause.ADMITTED)

    def spare(self, name: str, *, is_spare: bool = True) -> Gpu:
        """Keep a free GPU back as a replacement, or no longer; raises as :meth:`admit`."""
        with self.pool.change() as change:
            return change.move(name, Cause.SPARED if is_spare else Cause.UNSPARED)

    def describe(self, box: int, *, kind: Kind | None = None, models: Mapping[int, str] = {},
                 ) -> None:
        """Describe a box: kind, and models by slot; nodes do not know.

        Raises
        ------
        NotFound, Impossible, StoreError, Deposed
        """
        node = self.pool.node(box)
        if node.role is not Role.BOX:
            raise Impossible(f"{node.name} is a host; boxes have kinds and GPUs")
        with self.pool.change() as change:
            if kind is not None:
                change.put(replace(node, kind=kind), f"box {node.name} is of kind {kind}")
            for slot, model in models.items():
                gpu = self.pool.gpu(gpu_id(node.serial, slot))
                change.put(replace(gpu, model=model), f"GPU {gpu.name} is a {model}")

    def set_aside(self, name: str) -> Gpu:
        """Let nobody have an unused GPU; raises as :meth:`admit`."""
        with self.pool.change() as change:
            return change.move(name, Cause.SET_ASIDE)

    def retire(self, name: str) -> Gpu:
        """Forget a GPU that is quarantined or failed, as it leaves the slot; raises as
        :meth:`admit`."""
        with self.pool.change() as change:
            return change.move(name, Cause.RETIRED)

    def give_up(self, name: str, why: str) -> Task:
        """Take a broken GPU from the host by force; a request for it gets another GPU.

        Raises
        ------
        NotFound, Conflict, StoreError, Deposed
        """
        return self.detach([name], force=True, broken=why)

    def close(self, serial: int, *, is_closed: bool = True) -> Node:
        """Give nothing new to a host, or nothing new of a box; or open the node again. GPUs in use
        stay.

        Raises
        ------
        NotFound, StoreError, Deposed
        """
        with self.pool.change() as change:
            node = replace(self.pool.node(serial), closed=is_closed)
            change.put(node, f"{node.role} {node.name} is {'closed' if is_closed else 'open'}")
        return node

    def has_agent(self, serial: int, *, has_agent: bool = True) -> Node:
        """Say whether a host has an agent, whose word is awaited with each attach from now on.

        Raises
        ------
        NotFound, Impossible, StoreError, Deposed
        """
        node = self._host(serial)
        with self.pool.change() as change:
            node = replace(node, agent=has_agent)
            change.put(node, f"host {node.name} has {'an' if has_agent else 'no'} agent")
        return node

    async def confirm(self, serial: int, name: str = "", *, bus: int | None = None,
                      card: str = "") -> Gpu:
        """Take the word of a host's agent that it sees a GPU.

        Parameters
        ----------
        serial : int
            The host.
        name : str
            Name of the GPU; or empty, if ``bus`` says which one.
        bus : int or None
            Number of the bus on which the host sees the GPU. It must be that of the GPU's port, by
            what the host's configuration writes have told the proxy.
        card : str
            Serial number of the GPU. Beside a name or a bus the number is written down; alone it
            must have been before.

        Raises
        ------
        NotFound, Conflict, Impossible, StoreError, Deposed
        """
        return await self._words.confirm(self._host(serial), name, bus, card)

    def _host(self, serial: int) -> Node:
        node = self.pool.node(serial)
        if node.role is not Role.HOST:
            raise Impossible(f"{node.name} is a box; a host gets GPUs")
        return node

    def verdicts(self, number: int) -> dict[str, Verdict]:
        """What a task that attaches has seen so far, and waits for, by GPU; of others nothing."""
        return self._driver.verdicts(number)

    def verdict(self, gpu: Gpu) -> Verdict | None:
        """Evidence of a GPU in an attach, seen and missing; ``None`` for any other GPU."""
        if gpu.state is not State.ATTACHING:
            return None
        return self.verdicts(gpu.task).get(gpu.name)

    async def wait(self, number: int) -> Task:
        """Wait until a task has ended, durably; raises :exc:`Deposed`."""
        return await self._driver.wait(number)

    # Nodes --------------------------------------------------------------------------------------

    async def meet(self, identity: Identity) -> None:
        """Give a number to a node that has announced itself, and bring the node to the records.

        The node's description is believed after a proof of the key.

        Raises
        ------
        PoolError, ~dxpu_manage.ManageError
        """
        await self._looks.meet(identity)

    async def watch(self, every: float = 0.5) -> None:
        """Meet announced nodes, look at all nodes and forget old events now and then; without an
        end."""
        await self._looks.watch(every)

    def rebalance(self) -> list[str]:
        """Spread all pairs of hosts and boxes over paths with a link, without a host that notices;
        returns the GPUs that take another path. Raises :exc:`StoreError`, :exc:`Deposed`."""
        return self._looks.rebalance()

    async def look_at_all(self) -> None:
        """Look at every node."""
        await self._looks.look_at_all()

    async def look(self, serial: int) -> None:
        """See how a node is, and mend each difference from the records."""
        await self._looks.look(serial)
