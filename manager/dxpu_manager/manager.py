"""The manager of a pool: fulfils wishes, and keeps the nodes as the records say.

A wish is in the records before any node is told, so a manager goes on where the former manager was
interrupted.
"""

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dxpu_manage import Identity, ManageError, NoAnswer, Stale

from .allocation import Kind
from .errors import Conflict, Deposed, Impossible, NotFound, PoolError, StoreError
from .lifecycle import BOUND, Cause, State, may
from .nodes import Nodes, Row, accepts, newer
from .pool import Change, Pool
from .records import (
    Binding, Gpu, Job, Node, Pair, Phase, Progress, Request, Role, Task, gpu_id,
)

__all__ = ["Limits", "PoolManager"]

_LOG = logging.getLogger("dxpu_manager")

#: Node numbers of hosts and boxes.
_NUMBERS = {Role.HOST: range(0x001, 0x800), Role.BOX: range(0x800, 0xFF0)}
#: Roles of identities.
_ROLES = {1: Role.HOST, 2: Role.BOX}
#: Ended tasks that are remembered; older ones are in the events only.
_REMEMBERED = 1000


@dataclass(frozen=True)
class Limits:
    """Times, in seconds.

    Parameters
    ----------
    attach : float
        Until the host must have the GPU.
    consent : float
        Until the host's operating system must have let go of a GPU.
    patience : float
        A host without an answer for so long does not keep a GPU from others: the host's row is of
        an old generation then, and is released with the next answer.
    again : float
        Between two attempts.
    look : float
        Between two looks at all nodes.
    admits : bool
        Clean GPUs are free without a word of an operator.
    """

    attach: float = 10.0
    consent: float = 60.0
    patience: float = 10.0
    again: float = 0.25
    look: float = 60.0
    admits: bool = False


class _RolledBack(Exception):
    """A task cannot be done; the text says why."""

    def __init__(self, why: str, *, broken: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.broken = broken


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
        self.down: dict[int, str] = {}
        self.strangers: dict[bytes, str] = {}
        self.deposed = asyncio.Event()
        self._doing: set[asyncio.Task[None]] = set()
        self._drivers: dict[int, asyncio.Task[None]] = {}
        self._looking: dict[int, asyncio.Lock] = {}

    async def __aenter__(self) -> "PoolManager":
        for task in list(self.pool.all(Task)):
            if not task.progress.ended:
                self._drive(task.number)
        return self

    async def __aexit__(self, *exception: object) -> None:
        doing = [*self._doing]
        for each in doing:
            each.cancel()
        await asyncio.gather(*doing, return_exceptions=True)

    def _begin(self, does: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(does)
        self._doing.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._doing.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, (Stale, Deposed)):
            self._is_deposed()
        elif isinstance(error, Exception):
            _LOG.error("a fault of the manager itself", exc_info=error)

    def _is_deposed(self) -> None:
        self.pool.deposed = True
        self.deposed.set()

    # Wishes -------------------------------------------------------------------------------------

    def attach(self, host: int, gpus: Iterable[str], *, request: Request | None = None) -> Task:
        """Give GPUs to a host, all or none; for a ``request``, which has begun then.

        Raises
        ------
        NotFound, Conflict, Impossible, StoreError, Deposed
        """
        pool, wanted = self.pool, tuple(gpus)
        node = pool.node(host)
        if node.role is not Role.HOST:
            raise Impossible(f"{node.name} is a box; a host gets GPUs")
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
        with pool.change() as change:
            task = self._new_task(change, Job.ATTACH, wanted, host, now + self.limits.attach)
            for name, port in zip(wanted, ports, strict=False):
                gpu = pool.gpu(name)
                if pool.node(gpu.box).closed:
                    raise Conflict(f"box {gpu.box:08x} is closed: open it first")
                if gpu.task:
                    raise Conflict(f"GPU {name} is in the hands of task {gpu.task}")
                if gpu.request and (request is None or gpu.request != request.number):
                    raise Conflict(f"GPU {name} is kept for request {gpu.request}")
                generation = gpu.generation + 1 & 0xFFFF
                change.move(name, Cause.ATTACH, task=task.number, generation=generation,
                            request=request.number if request else 0, broken="",
                            binding=Binding(host, port, generation))
                if pool.pair(host, gpu.box) is None:
                    change.put(Pair(host, gpu.box, secrets.token_hex(16)),
                               f"host {node.name} and box {gpu.box:08x} have a key")
            if request is not None:
                change.put(replace(request, phase=Phase.STARTING, task=task.number),
                           f"request {request.number} gets {', '.join(wanted)}")
        self._drive(task.number)
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
            task = self._new_task(change, Job.DETACH, wanted, hosts.pop(),
                                  pool.clock() + self.limits.consent, force=force)
            for name in wanted:
                if force:
                    change.move(name, Cause.DETACH, task=task.number, broken=broken)
                else:
                    change.put(replace(pool.gpu(name), task=task.number),
                               f"GPU {name}: its host is asked to let go")
        self._drive(task.number)
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

    async def wait(self, number: int) -> Task:
        """Wait until a task has ended, durably."""
        driver = self._drivers.get(number)
        if driver is not None:
            await asyncio.wait({driver})
        await self.pool.durable()
        return self.pool.task(number)

    def _new_task(self, change: Change, job: Job, gpus: tuple[str, ...], host: int,
                  deadline: float, *, force: bool = False) -> Task:
        tasks = sorted(self.pool.all(Task), key=lambda task: task.number)
        number = tasks[-1].number + 1 if tasks else 1
        ended = [task for task in tasks if task.progress.ended]
        for old in ended[:len(ended) - _REMEMBERED + 1]:
            change.remove(old, f"task {old.number} is forgotten")
        task = Task(number, job, gpus, host, force=force, began=self.pool.clock(),
                    deadline=deadline)
        change.put(task, f"task {number}: {job} {', '.join(gpus)}, host {host:08x}")
        return task

    # Tasks --------------------------------------------------------------------------------------

    def _drive(self, number: int) -> None:
        self._drivers[number] = self._begin(self._do(number))

    async def _do(self, number: int) -> None:
        """Bring a task to an end, from any progress."""
        pool, said = self.pool, ""
        await pool.durable()
        broken: tuple[str, ...] = ()
        try:
            task = pool.task(number)
            if task.progress is Progress.RUNNING:
                if task.job is Job.DETACH:
                    await self._consent(number)
                else:
                    await self._bind_all(number)
                    await self._written(number, Progress.DONE, Cause.EVIDENCE)
                    return
        except _RolledBack as why:
            said, broken = str(why), why.broken
            if task.job is Job.DETACH:
                await self._written(number, Progress.FAILED, None, said)
                return
            await self._written(number, Progress.ROLLING_BACK, Cause.ROLLED_BACK, said, broken)
        await self._release_all(number)
        task = pool.task(number)
        ended = Progress.FAILED if task.progress is Progress.ROLLING_BACK else Progress.DONE
        await self._written(number, ended, None, task.said)

    async def _written(self, number: int, progress: Progress, cause: Cause | None, said: str = "",
                       broken: tuple[str, ...] = ()) -> None:
        """Write down how far a task is; the GPUs of an ended task are in nobody's hands."""
        while True:
            try:
                with self.pool.change() as change:
                    task = replace(self.pool.task(number), progress=progress, said=said)
                    for name in task.gpus:
                        fields: dict[str, Any] = {"task": 0} if progress.ended else {}
                        if name in broken:
                            fields["broken"] = said
                        if cause is not None:
                            change.move(name, cause, **fields)
                        elif self.pool.gpu(name).task == number:
                            change.put(replace(self.pool.gpu(name), **fields),
                                       f"GPU {name} is in nobody's hands")
                    if progress.ended:
                        task = replace(task, ended=self.pool.clock())
                    change.put(task, f"task {number}: {progress}" + f", {said}" * bool(said))
                break
            except StoreError:
                await asyncio.sleep(self.limits.again)
        await self.pool.durable()

    def _parties(self, name: str) -> tuple[Gpu, Binding, Node, Node]:
        """A bound GPU, with binding, host and box."""
        gpu = self.pool.gpu(name)
        if gpu.binding is None:
            raise _RolledBack(f"GPU {name} is {gpu.state}")
        return gpu, gpu.binding, self.pool.node(gpu.binding.host), self.pool.node(gpu.box)

    async def _bind_all(self, number: int) -> None:
        """Bind the rows of all GPUs of a task, and wait until the host has all GPUs."""
        lacks = dict.fromkeys(self.pool.task(number).gpus, "nothing is known of it")
        since = self.pool.clock()
        while True:
            for name in list(lacks):
                try:
                    lacks[name] = await self._bind(name)
                except (NoAnswer, StoreError) as error:
                    self._forget(name)
                    lacks[name] = str(error)
                except Stale:
                    raise
                except ManageError as error:
                    raise _RolledBack(str(error)) from None
                if not lacks[name]:
                    del lacks[name]
            task, now = self.pool.task(number), self.pool.clock()
            never = tuple(name for name, text in lacks.items() if text == _NEVER)
            if len(never) < len(lacks):
                since = now
            if not lacks:
                return
            if task.cancelled:
                raise _RolledBack("cancelled")
            # Who had a GPU gets it back whenever both nodes are there again.
            if now >= (task.deadline if task.job is Job.ATTACH else since + self.limits.attach):
                raise _RolledBack("; ".join(f"GPU {name}: {text}" for name, text in lacks.items()),
                                  broken=never)
            await asyncio.sleep(self.limits.again)

    async def _bind(self, name: str) -> str:
        """Take all steps to give a GPU to the host; returns the missing condition, or nothing."""
        gpu, binding, host, box = self._parties(name)
        pair = self.pool.pair(host.serial, box.serial)
        if pair is not None:
            await self.nodes.pair(host, box, pair)
        here = (await self.nodes.rows(host))[binding.port]
        there = (await self.nodes.rows(box))[gpu.slot - 1]
        host_has, box_has = _is(here, box, gpu, binding), _is(there, host, gpu, binding)
        found = await self.nodes.evidence(host, binding.port, box) if host_has else None
        if not host_has or not box_has or found is None or found.lost:
            # A row that is bound already begins no new life, so the card would not come back.
            if host_has or not all(
                    has or accepts(row, binding.generation)
                    for row, has in ((here, host_has), (there, box_has))):
                binding = await self._fresh(gpu, binding, here, there)
            await self.nodes.bind(box, gpu.slot - 1, host, gpu, binding)
            await self.nodes.bind(host, binding.port, box, gpu, binding)
            found = await self.nodes.evidence(host, binding.port, box)
        if found.linked:
            return ""
        if not found.session:
            return f"host {host.name} and box {box.name} have no session"
        return _NEVER

    async def _fresh(self, gpu: Gpu, binding: Binding, *rows: Row) -> Binding:
        """The binding with a newer generation that all rows take, durable before any node is told.
        """
        generation = binding.generation + 1 & 0xFFFF
        for row in rows:
            if row.operation and not newer(generation, row.generation):
                generation = row.generation + 1 & 0xFFFF
        new = replace(binding, generation=generation)
        with self.pool.change() as change:
            change.put(replace(self.pool.gpu(gpu.name), binding=new, generation=generation),
                       f"GPU {gpu.name}: its binding has generation {generation}")
        await self.pool.durable()
        return new

    def _forget(self, name: str) -> None:
        """Reach the nodes of a GPU under factory addresses the next time."""
        gpu = self.pool.gpu(name)
        self.nodes.forget(gpu.box)
        if gpu.binding is not None:
            self.nodes.forget(gpu.binding.host)

    async def _consent(self, number: int) -> None:
        """Ask a host's operating system to let go of the GPUs of a task, unless by force."""
        task = self.pool.task(number)
        asked: set[str] = set()
        waits = [name for name in task.gpus if self.pool.gpu(name).state is State.ATTACHED]
        while waits:
            for name in list(waits):
                _, binding, host, _ = self._parties(name)
                try:
                    if name not in asked:
                        if await self.nodes.has_let_go(host, binding.port) is not True:
                            await self.nodes.ask_to_let_go(host, binding.port)
                        asked.add(name)
                    answer = await self.nodes.has_let_go(host, binding.port)
                    if answer:
                        await self._leaves(name)
                except (NoAnswer, StoreError):
                    self._forget(name)
                    continue
                if answer:
                    waits.remove(name)
                elif answer is False:
                    raise _RolledBack(f"the operating system of host {host.name} has not let go of "
                                      f"GPU {name}: something uses it, or no driver listens")
            if not waits:
                return
            if self.pool.task(number).cancelled:
                raise _RolledBack("cancelled")
            if self.pool.clock() >= task.deadline:
                raise _RolledBack(f"host {task.host:08x} does not answer; by force its GPUs can be "
                                  "taken nevertheless")
            await asyncio.sleep(self.limits.again)

    async def _leaves(self, name: str) -> None:
        with self.pool.change() as change:
            change.move(name, Cause.DETACH)
        await self.pool.durable()

    async def _release_all(self, number: int) -> None:
        """Release the rows of all GPUs of a task, the host's first, until nothing is bound and all
        is clean."""
        task = self.pool.task(number)
        patience = asyncio.get_running_loop().time() + self.limits.patience
        left = {name: False for name in task.gpus
                if self.pool.gpu(name).state is State.DRAINING}
        while left:
            for name, host_done in list(left.items()):
                gpu, binding, host, box = self._parties(name)
                try:
                    if not host_done:
                        await self.nodes.release(host, binding.port)
                except Stale:
                    raise
                except ManageError:
                    self.nodes.forget(host.serial)
                    if asyncio.get_running_loop().time() < patience:
                        continue
                left[name] = True
                try:
                    await self.nodes.release(box, gpu.slot - 1)
                    is_dirty = gpu.slot in await self.nodes.dirty(box)
                    cause = Cause.BROKEN if gpu.broken else Cause.DIRTY if is_dirty else Cause.CLEAN
                    with self.pool.change() as change:
                        change.move(name, cause)
                except Stale:
                    raise
                except (ManageError, StoreError):
                    self.nodes.forget(box.serial)
                    continue
                await self.pool.durable()
                del left[name]
            if left:
                await asyncio.sleep(self.limits.again)

    # Nodes --------------------------------------------------------------------------------------

    async def meet(self, identity: Identity) -> None:
        """Give a number to a node that has announced itself, and bring the node to the records.

        The node's description is believed after a proof of the key.

        Raises
        ------
        PoolError, ~dxpu_manage.ManageError
        """
        role = _ROLES.get(identity.role)
        if role is None:
            raise Impossible(f"{identity.mac.hex(':')} is neither host nor box")
        try:
            node = self.pool.node(identity.serial)
        except NotFound:
            taken = {known.number for known in self.pool.all(Node)}
            number = next((n for n in _NUMBERS[role] if n not in taken), None)
            if number is None:
                raise Conflict(f"all numbers of {role}s are taken: retire one") from None
            node = Node(identity.serial, role, identity.mac.hex(), number, identity.slots)
            if (node.serial, identity.mac) not in self.nodes.keys:
                raise Impossible(f"no key of the {role} {node.name} at {identity.mac.hex(':')}: "
                                 "give its factory record to the manager") from None
            with self.pool.change() as change:
                change.put(node, f"{role} {node.name} has number {number:#05x}")
            await self.pool.durable()
        if (node.mac, node.role) != (identity.mac.hex(), role):
            raise Conflict(f"{identity.mac.hex(':')} says that it is the {node.role} {node.name}, "
                           f"which is {bytes.fromhex(node.mac).hex(':')}: one of two nodes with "
                           "this serial number is wrong")
        self.nodes.forget(node.serial)
        await self.look(node.serial)

    async def watch(self, every: float = 0.5) -> None:
        """Meet announced nodes, and look at all nodes now and then; without an end."""
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            for identity in await self.nodes.manager.discover(every):
                self._begin(self._meets(identity))
            if now() >= due:
                self._begin(self.look_at_all())
                due = now() + self.limits.look

    async def _meets(self, identity: Identity) -> None:
        try:
            await self.meet(identity)
        except Deposed:
            raise
        except PoolError as error:
            self.strangers[identity.mac] = str(error)
        else:
            self.strangers.pop(identity.mac, None)

    async def look_at_all(self) -> None:
        """Look at every node."""
        await asyncio.gather(*(self.look(node.serial) for node in list(self.pool.all(Node))))

    async def look(self, serial: int) -> None:
        """See how a node is, and mend each difference from the records."""
        async with self._looking.setdefault(serial, asyncio.Lock()):
            node = self.pool.node(serial)
            try:
                await (self._look_at_box if node.role is Role.BOX else self._look_at_host)(node)
            except Stale:
                self._is_deposed()
                raise
            except ManageError as error:
                self.nodes.forget(serial)
                self.down[serial] = str(error)
            else:
                self.down.pop(serial, None)

    async def _look_at_box(self, node: Node) -> None:
        before = {gpu.slot: gpu for gpu in self.pool.all(Gpu) if gpu.box == node.serial}
        rows, present = await self.nodes.rows(node), await self.nodes.present(node)
        dirty = await self.nodes.dirty(node)
        foreign = []
        with self.pool.change() as change:
            for slot in range(1, node.rows + 1):
                name = gpu_id(node.serial, slot)
                gpu = self._unchanged(before.get(slot), node.serial, slot)
                if gpu is None:
                    continue
                state = gpu.state
                if slot in present and state is State.ABSENT:
                    if gpu.key not in self.pool.records:
                        change.put(gpu, f"GPU {name}: a slot of a box")
                    gpu = change.move(name, Cause.FOUND, broken="")
                elif slot not in present and may(state, Cause.PULLED):
                    gpu = change.move(name, Cause.PULLED)
                elif slot in dirty and state is not State.DRAINING and may(state, Cause.DIRTY):
                    gpu = change.move(name, Cause.DIRTY)
                if (self.limits.admits and gpu.state is State.QUARANTINED and slot not in dirty
                        and gpu.cause in (Cause.FOUND, Cause.DIRTY)):
                    change.move(name, Cause.ADMITTED)
                if rows[slot - 1].used and state not in BOUND:
                    foreign.append(slot)
                    if may(state, Cause.DRIFT):
                        change.move(name, Cause.DRIFT)
        for slot in foreign:
            await self.pool.durable()
            await self.nodes.release(node, slot - 1)
        self._bind_again(
            gpu for gpu in list(self.pool.all(Gpu)) if gpu.box == node.serial
            and gpu is before.get(gpu.slot) and gpu.state is State.ATTACHED and not gpu.task
            and gpu.binding is not None
            and not _is(rows[gpu.slot - 1], self.pool.node(gpu.binding.host), gpu, gpu.binding))

    def _unchanged(self, before: Gpu | None, box: int, slot: int) -> Gpu | None:
        """A GPU in nobody's hands whose record is as before the nodes were asked."""
        fresh = Gpu(box, slot)
        now = self.pool.records.get(fresh.key)
        if now is None and before is None:
            return fresh
        if now is not before or not isinstance(now, Gpu) or now.task:
            return None
        return now

    async def _look_at_host(self, node: Node) -> None:
        before = self.pool.bound_to(node.serial)
        rows = await self.nodes.rows(node)
        again = []
        for port, row in enumerate(rows):
            held, now = before.get(port), self.pool.bound_to(node.serial).get(port)
            if held != now:
                continue
            if now is None:
                if row.used:
                    await self.nodes.release(node, port)
                continue
            gpu, binding = now
            if gpu.task or gpu.state is not State.ATTACHED:
                continue
            if not _is(row, self.pool.node(gpu.box), gpu, binding):
                again.append(gpu)
                continue
            found = await self.nodes.evidence(node, port, self.pool.node(gpu.box))
            if found.lost and self.pool.gpu(gpu.name) is gpu:
                again.append(gpu)
        self._bind_again(again)

    def _bind_again(self, gpus: Iterable[Gpu]) -> None:
        """Bind GPUs again whose rows, or whose cards, were lost."""
        for gpu in gpus:
            if gpu.binding is None:
                continue
            with self.pool.change() as change:
                task = self._new_task(change, Job.REBIND, (gpu.name,), gpu.binding.host,
                                      self.pool.clock() + self.limits.attach)
                change.move(gpu.name, Cause.REBIND, task=task.number)
            self._drive(task.number)


#: What is said of a GPU that does not come up although all else is there.
_NEVER = "its link does not come up"


def _is(row: Row, peer: Node, gpu: Gpu, binding: Binding) -> bool:
    """Whether a row has the binding of a GPU."""
    return row.used and row.generation == binding.generation and row.target == (
        peer.number, gpu.slot, 0)
