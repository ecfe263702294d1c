"""Requests for GPUs: a queue, leases, reservations, replacements.

Decisions come from :mod:`.allocation` and :mod:`.queue`; tasks of the manager carry these out.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from .allocation import Inventory, Kind, Place, Wish, place
from .errors import Conflict, Impossible, PoolError
from .keeper import Keeper
from .lifecycle import BOUND, Cause, State
from .manager import PoolManager
from .paths import paths_of
from .queue import Running, Waiting, explain, schedule
from .records import Gpu, Node, Phase, Progress, Request, Role

__all__ = ["Requests"]

#: Seconds before a request whose GPUs could not be attached has its turn again.
AGAIN = 30.0
#: Seconds between two turns at most: timers stand still while a machine sleeps, and leases do not.
_TURNS = 60.0
#: Ended requests that are remembered.
_REMEMBERED = 1000
#: States of GPUs that can be given away, now or later.
_GIVEN = BOUND | {State.FREE, State.RESERVED}


class Requests:
    """Requests to a manager.

    All decisions are in the records, so another manager goes on.
    """

    def __init__(self, manager: PoolManager) -> None:
        self.manager, self.pool = manager, manager.pool
        self._woken = asyncio.Event()
        self.spares = Keeper(self.pool)
        self.pool.listeners.append(lambda event: self._woken.set())

    # Wishes -------------------------------------------------------------------------------------

    def ask(self, wish: Wish, *, priority: int = 0, lease: float | None = None,
            keeps: bool = False) -> Request:
        """Put a wish into the queue.

        Parameters
        ----------
        wish : Wish
        priority : int
            Higher priorities have the turn first.
        lease : float or None
            Seconds until the GPUs go back; ``None``: at :meth:`give_back`.
        keeps : bool
            Keep GPUs for the host, and attach at :meth:`take_up`.

        Raises
        ------
        NotFound, Impossible, StoreError, Deposed
        """
        node = self.pool.node(wish.host)
        if node.role is not Role.HOST:
            raise Impossible(f"{node.name} is a box; a host gets GPUs")
        if wish.count > node.rows:
            raise Impossible(f"host {node.name} has {node.rows} ports, and {wish.count} are needed")
        if lease is not None and lease <= 0:
            raise Impossible(f"a lease is for a time above 0 s, not {lease:g}")
        newest = self.pool.last(Request)
        ended = [request for request in self.pool.all(Request) if request.phase is Phase.ENDED]
        with self.pool.change() as change:
            for old in ended[:len(ended) - _REMEMBERED + 1]:
                change.remove(old, f"request {old.number} is forgotten")
            request = Request(newest.number + 1 if newest else 1, wish, self.pool.clock(),
                              priority, lease, keeps)
            change.put(request, f"request {request.number}: {wish}, for host {node.name}")
        return request

    def renew(self, number: int, lease: float | None) -> Request:
        """Let a lease end so many seconds from now, or not by itself.

        Raises
        ------
        NotFound, Conflict, Impossible, StoreError, Deposed
        """
        request = self._of(number, Phase.HOLDING, Phase.RESERVED, Phase.STARTING)
        if lease is not None and lease <= 0:
            raise Impossible(f"a lease is for a time above 0 s, not {lease:g}")
        until = None if lease is None else self.pool.clock() + lease
        with self.pool.change() as change:
            new = replace(request, lease=lease, until=until)
            change.put(new, f"request {number} is renewed")
        return new

    def give_back(self, number: int) -> Request:
        """End a request: the GPUs go back, or the wait ends; raises as :meth:`renew`."""
        request = self._of(number, Phase.WAITING, Phase.HOLDING, Phase.RESERVED)
        with self.pool.change() as change:
            new = replace(request, phase=Phase.ENDING if request.gpus else Phase.ENDED)
            change.put(new, f"request {number} is given back")
        return new

    def take_up(self, number: int) -> Request:
        """Attach kept GPUs to the host; raises as :meth:`renew`."""
        request = self._of(number, Phase.RESERVED)
        self.manager.attach(request.wish.host, request.gpus, request=request)
        return self.pool.request(number)

    def explain(self, number: int) -> str:
        """Why a request waits, and when it could start; raises :exc:`NotFound`, :exc:`Conflict`."""
        self._of(number, Phase.WAITING)
        free, running = self.inventory()
        return explain(number, self.pool.clock(), self._waiting(), running, free)

    def _of(self, number: int, *phases: Phase) -> Request:
        request = self.pool.request(number)
        if request.phase not in phases:
            raise Conflict(f"request {number} is {request.phase}, not {' or '.join(phases)}")
        return request

    # Turns --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Give turns whenever something changes or a lease ends, and keep spares of what is free
        then; without an end."""
        await self.spares.begin()
        while True:
            self._woken.clear()
            try:
                self.turn()
                self.spares.turn()
            except PoolError:
                await asyncio.sleep(self.manager.limits.again)
            due = self._due()
            left = _TURNS if due is None else due - self.pool.clock()
            try:
                await asyncio.wait_for(self._woken.wait(), min(max(0.0, left), _TURNS))
            except TimeoutError:
                continue

    def _due(self) -> float | None:
        """When the next lease ends, or the next attempt may be made."""
        times = [r.until for r in self.pool.all(Request)
                 if r.until is not None and r.phase in (Phase.HOLDING, Phase.RESERVED)]
        times += [r.after for r in self.pool.all(Request)
                  if r.phase is Phase.WAITING and r.after > self.pool.clock()]
        return min(times, default=None)

    def turn(self) -> None:
        """Go on with all requests, as far as that is possible now.

        Raises
        ------
        StoreError, Deposed
        """
        for request in list(self.pool.all(Request)):
            self._go_on(request)
        queue = self._waiting()
        if not queue:
            return
        free, running = self.inventory()
        now = self.pool.clock()
        for waiting, gpus in schedule(now, queue, running, free).starts:
            request = self.pool.request(waiting.number)
            until = None if request.lease is None else now + request.lease
            started = replace(request, gpus=gpus, until=until, said="")
            if not request.keeps:
                self.manager.attach(request.wish.host, gpus, request=started)
                continue
            with self.pool.change() as change:
                for name in gpus:
                    change.move(name, Cause.RESERVED, request=request.number)
                change.put(replace(started, phase=Phase.RESERVED),
                           f"request {request.number}: {', '.join(gpus)} are kept")

    def _go_on(self, request: Request) -> None:
        """The next step of a request that has GPUs."""
        now = self.pool.clock()
        if request.phase is Phase.STARTING:
            task = self.pool.task(request.task)
            if not task.progress.ended:
                return
            if task.progress is Progress.DONE:
                self._put(replace(request, phase=Phase.HOLDING), "holds its GPUs")
            else:
                left = tuple(name for name in request.gpus if self._has(request, name))
                phase = Phase.HOLDING if left else Phase.WAITING
                self._put(replace(request, phase=phase, gpus=left, said=task.said,
                                  after=now + AGAIN, until=request.until if left else None),
                          f"could not start: {task.said}")
        elif request.phase in (Phase.HOLDING, Phase.RESERVED):
            if request.until is not None and request.until <= now:
                self._put(replace(request, phase=Phase.ENDING), "ends its lease")
                self._go_on(self.pool.request(request.number))
            elif request.phase is Phase.HOLDING and request.after <= now:
                self._replace(request)
            elif request.phase is Phase.RESERVED and not all(
                    self.pool.gpu(name).request == request.number for name in request.gpus):
                self._put(replace(request, phase=Phase.WAITING, gpus=(), until=None),
                          "has lost a GPU that was kept")
                self._unreserve(request)
        elif request.phase is Phase.ENDING:
            self._end(request)

    def _has(self, request: Request, name: str) -> bool:
        """Whether a GPU is still bound for a request."""
        gpu = self.pool.gpu(name)
        return gpu.request == request.number and gpu.state in BOUND

    def _put(self, request: Request, said: str) -> None:
        with self.pool.change() as change:
            change.put(request, f"request {request.number} {said}")

    def _end(self, request: Request) -> None:
        """Take the GPUs back: with consent, and by force if there is none."""
        bound = [name for name in request.gpus if self._has(request, name)]
        self._unreserve(request)
        if not bound:
            self._put(replace(request, phase=Phase.ENDED), "has ended")
            return
        if all(self.pool.gpu(name).state is State.ATTACHED and not self.pool.gpu(name).task
               for name in bound):
            refused = request.task and self.pool.task(request.task).progress is Progress.FAILED
            task = self.manager.detach(bound, force=bool(refused))
            self._put(replace(request, task=task.number), "gives its GPUs back")

    def _unreserve(self, request: Request) -> None:
        with self.pool.change() as change:
            for name in request.gpus:
                gpu = self.pool.gpu(name)
                if gpu.request == request.number and gpu.state is State.RESERVED:
                    change.move(name, Cause.UNRESERVED)

    def _replace(self, request: Request) -> None:
        """Other GPUs for those that are missing: spare ones, or free ones."""
        left = tuple(name for name in request.gpus if self._has(request, name))
        missing = request.wish.count - len(left)
        if missing <= 0 or any(self.pool.gpu(name).task for name in left):
            return
        gone = [name for name in request.gpus if name not in left]
        models = [self.pool.gpu(name).model for name in gone] + missing * [request.wish.model]
        free, _ = self.inventory(spares=True)
        host, fresh = request.wish.host, list[str]()
        for model in models[:missing]:
            found = place(Wish(host, 1, model, path=request.wish.path), free)
            if found is not None:
                free.take(host, found)
                fresh += found
        if fresh:
            started = replace(request, gpus=(*left, *fresh))
            self.manager.attach(host, fresh, request=started)

    # What is free -------------------------------------------------------------------------------

    def _waiting(self) -> list[Waiting]:
        now = self.pool.clock()
        return [Waiting(r.number, r.wish, r.since, r.priority, r.lease)
                for r in self.pool.all(Request) if r.phase is Phase.WAITING and r.after <= now]

    def inventory(self, *, spares: bool = False) -> tuple[Inventory, list[Running]]:
        """What can be given away, and who has some of it until when."""
        nodes = list(self.pool.all(Node))
        closed = {node.serial for node in nodes if node.closed}
        given = [gpu for gpu in self.pool.all(Gpu)
                 if (gpu.state in _GIVEN or spares and gpu.state is State.SPARE)
                 and gpu.box not in closed
                 # A task that gives several GPUs back has them until the last one is free.
                 and not (gpu.task and gpu.state is State.FREE)]
        hosts = {node.serial: 0 if node.closed else node.rows for node in nodes
                 if node.role is Role.HOST}
        kinds: dict[int, Kind] = {node.serial: node.kind for node in nodes
                                  if node.role is Role.BOX}
        free = Inventory(kinds, (Place(gpu.name, gpu.box, gpu.model) for gpu in given), hosts,
                         paths_of(self.pool))
        running = list(self._running(given))
        for one in running:
            free.take(one.host, one.gpus)
        return free, running

    def _running(self, given: list[Gpu]) -> Iterator[Running]:
        """Who has GPUs: requests, and hosts that were given some by name."""
        by: dict[tuple[int, int], list[str]] = {}
        for gpu in given:
            if gpu.state in (State.FREE, State.SPARE):
                continue
            if gpu.binding is not None:
                host = gpu.binding.host
            else:
                host = self.pool.request(gpu.request).wish.host
            by.setdefault((gpu.request, host), []).append(gpu.name)
        for (number, host), gpus in by.items():
            until = self.pool.request(number).until if number else None
            yield Running(host, tuple(gpus), until)
