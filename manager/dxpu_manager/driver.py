"""Tasks: all steps at the nodes by which GPUs are attached and detached.

All steps can be taken twice, so a task goes on wherever a former manager was interrupted.
"""

import asyncio
from dataclasses import replace
from itertools import islice
from typing import Any

from dxpu_manage import ManageError, NoAnswer, Stale, generation_after

from .background import Background
from .errors import Deposed, StoreError
from .evidence import NEVER, Sight, Verdict
from .lifecycle import Cause, State
from .limits import Limits
from .nodes import Nodes, Row, accepts, is_bound
from .pool import Change, Pool
from .records import Binding, Gpu, Job, Node, Progress, Task

__all__ = ["Driver"]

#: Ended tasks that are remembered; older ones are in the events only.
_REMEMBERED = 1000


class _RolledBack(Exception):
    """A task cannot be done; the text says why."""

    def __init__(self, why: str, *, broken: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.broken = broken


class Driver:
    """Drives tasks to their ends.

    Parameters
    ----------
    pool : Pool
    nodes : Nodes
    limits : Limits
    background : Background
        Where tasks go on.
    """

    def __init__(self, pool: Pool, nodes: Nodes, limits: Limits, background: Background) -> None:
        self.pool, self.nodes, self.limits = pool, nodes, limits
        self._background = background
        #: Of tasks that have not ended.
        self._drivers: dict[int, asyncio.Task[None]] = {}
        #: What those that attach have seen, by GPU.
        self._sights: dict[int, dict[str, Sight]] = {}

    def new(self, change: Change, job: Job, gpus: tuple[str, ...], host: int,
            deadline: float, *, force: bool = False) -> Task:
        """A new task as part of a change; the oldest of many ended tasks are forgotten.

        :meth:`drive` begins the task once the change is made.
        """
        newest, ended = self.pool.last(Task), self.pool.count(Task) - len(self._drivers)
        number = newest.number + 1 if newest else 1
        if ended >= _REMEMBERED:
            olds = (task for task in self.pool.all(Task) if task.progress.ended)
            for old in islice(olds, ended - _REMEMBERED + 1):
                change.remove(old, f"task {old.number} is forgotten")
        task = Task(number, job, gpus, host, force=force, began=self.pool.clock(),
                    deadline=deadline)
        change.put(task, f"task {number}: {job} {', '.join(gpus)}, host {host:08x}")
        return task

    def drive(self, number: int) -> None:
        """Bring a task to an end, from whatever progress the records say."""
        self._drivers[number] = driver = self._background.begin(self._do(number))
        driver.add_done_callback(lambda driver: self._ended(number))

    def _ended(self, number: int) -> None:
        self._drivers.pop(number)
        self._sights.pop(number, None)

    def verdicts(self, number: int) -> dict[str, Verdict]:
        """What a task that attaches has seen so far, and waits for, by GPU."""
        return {name: sight.verdict for name, sight in self._sights.get(number, {}).items()}

    async def wait(self, number: int) -> Task:
        """Wait until a task has ended, durably; raises :exc:`Deposed`."""
        driver = self._drivers.get(number)
        if driver is not None:
            await asyncio.wait({driver})
        await self.pool.durable()
        task = self.pool.task(number)
        if self.pool.deposed and not task.progress.ended:
            raise Deposed("another manager has taken over")
        return task

    async def _do(self, number: int) -> None:
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
                    task = self.pool.task(number).advanced(progress, said)
                    seen = {name: verdict.seen for name, verdict in self.verdicts(number).items()}
                    if cause is Cause.EVIDENCE:
                        task = replace(task, seen=tuple(
                            f"GPU {name}: {', '.join(found)}" for name, found in seen.items()))
                    for name in task.gpus:
                        fields: dict[str, Any] = {"task": 0} if progress.ended else {}
                        held = self.pool.gpu(name).binding
                        if cause is Cause.EVIDENCE and held is not None:
                            fields["binding"] = replace(held, seen=seen[name])
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
        """Bind the rows of all GPUs of a task, and wait until the host has all GPUs.

        All are judged in the same round at last, so that none has gone while others came.
        """
        task = self.pool.task(number)
        sights = self._sights[number] = {
            name: Sight(self.limits, task.deadline) for name in task.gpus}
        since = self.pool.clock()
        while True:
            for name, sight in sights.items():
                try:
                    await self._bind(name, sight, task.job)
                except (NoAnswer, StoreError) as error:
                    self._forget(name)
                    sight.fails(str(error))
                except Stale:
                    raise
                except ManageError as error:
                    raise _RolledBack(str(error)) from None
            lacks = {name: sight.verdict for name, sight in sights.items() if sight.verdict.lacks}
            now = self.pool.clock()
            never = tuple(name for name, verdict in lacks.items() if verdict.lacks == NEVER)
            if len(never) < len(lacks):
                since = now
            if self.pool.task(number).cancelled:
                raise _RolledBack("cancelled")
            if not lacks:
                return
            # Who had a GPU gets it back whenever both nodes are there again.
            late = (now >= since + self.limits.attach if task.job is Job.REBIND else
                    any(v.due is not None and now >= v.due for v in lacks.values()))
            if late:
                raise _RolledBack("; ".join(f"GPU {name}: {verdict.lacks}"
                                            for name, verdict in lacks.items()), broken=never)
            await asyncio.sleep(self.limits.again)

    async def _bind(self, name: str, sight: Sight, job: Job) -> None:
        """Take all steps to give a GPU to the host, and judge whether the host has it."""
        gpu, binding, host, box = self._parties(name)
        pair = self.pool.pair(host.serial, box.serial)
        if pair is not None and not sight.came:
            await self.nodes.pair(host, box, pair, self.pool.partners)
        here = (await self.nodes.rows(host))[binding.port]
        there = (await self.nodes.rows(box))[gpu.slot - 1]
        host_has, box_has = is_bound(here, box, gpu, binding), is_bound(there, host, gpu, binding)
        for has, node, number, peer, row in ((box_has, box, gpu.slot - 1, host, there),
                                             (host_has, host, binding.port, box, here)):
            if has and not row.paths >> binding.path & 1:
                await self.nodes.bind(node, number, peer, gpu, binding)
        found = await self.nodes.evidence(host, binding.port, box) if host_has else None
        if not host_has or not box_has or found is None or found.lost:
            # A row that is bound already begins no new life, so the card would not come back.
            if host_has or not all(
                    has or accepts(row, binding.generation)
                    for row, has in ((here, host_has), (there, box_has))):
                binding = await self._fresh(gpu, binding, here, there)
            sight.was_idle = await self.nodes.is_idle(host, binding.port)
            await self.nodes.bind(box, gpu.slot - 1, host, gpu, binding)
            await self.nodes.bind(host, binding.port, box, gpu, binding)
            found = await self.nodes.evidence(host, binding.port, box)
        now = self.pool.clock()
        if job is Job.REBIND:
            sight.rebinds(found, host, box)
            return
        # An agent may have said its word meanwhile.
        newest = self.pool.gpu(name).binding
        if newest is None or newest.generation != binding.generation:
            sight.fails("its binding has changed")
            return
        is_learnt = found.came and found.windows
        if sight.judge(found, newest, host, box, now).lacks and is_learnt != bool(newest.learnt):
            self._learns(name, now if is_learnt else 0.0)

    def _learns(self, name: str, since: float) -> None:
        """Note since when the windows of a host are seen, or that card or windows have gone; so a
        manager that takes over goes on."""
        gpu = self.pool.gpu(name)
        if gpu.binding is None:
            return
        binding = gpu.binding.anew(gpu.generation) if not since else replace(
            gpu.binding, learnt=since)
        with self.pool.change() as change:
            change.put(replace(gpu, binding=binding), f"GPU {name}: host {binding.host:08x} has "
                       f"{'windows for it' if since else 'lost card or windows'}")

    async def _fresh(self, gpu: Gpu, binding: Binding, *rows: Row) -> Binding:
        """The binding with a newer generation that all rows take, durable before any node is told.
        """
        generation = generation_after(
            binding.generation, *(row.generation for row in rows if row.operation))
        held = self.pool.gpu(gpu.name)
        new = (held.binding or binding).anew(generation)
        with self.pool.change() as change:
            change.put(replace(held, binding=new, generation=generation),
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
            change.leaves(name)
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
