"""Spares that the manager keeps by itself, of GPUs without a waiting request.

Ref: docs/reference/manager.md ("Spares")
"""

from collections import Counter

from .allocation import Kind
from .lifecycle import Cause, State
from .pool import Pool
from .records import Gpu, Node, Setting
from .spares import Failures, Plan, Policy, plan
from .store import Event

__all__ = ["Keeper"]

#: Name of the setting with the policy.
_SETTING = "spares"


class Keeper:
    """Plans spares of a pool, and keeps GPUs back if the policy says so.

    Parameters
    ----------
    pool : Pool
    """

    def __init__(self, pool: Pool) -> None:
        self.pool, self.failures = pool, Failures()
        #: Number of the newest event that counts; events that come while older ones are read.
        self._last = 0
        self._waiting: list[Event] | None = []
        pool.listeners.append(self._came)

    async def begin(self) -> None:
        """Count what the store's events say; raises :exc:`StoreError`."""
        if self._waiting is None:
            return
        async for event in self.pool.store.events():
            self._count(event)
        waiting, self._waiting = self._waiting, None
        for event in waiting:
            self._count(event)

    def _came(self, event: Event) -> None:
        if self._waiting is not None:
            self._waiting.append(event)
        else:
            self._count(event)

    def _count(self, event: Event) -> None:
        if event.number > self._last:
            self._last = event.number
            self.failures.take(event)

    @property
    def policy(self) -> Policy:
        """How many spares somebody wants."""
        found = self.pool.records.get(f"{Setting.KIND}/{_SETTING}")
        return Policy.of(found.value if isinstance(found, Setting) else "")

    @policy.setter
    def policy(self, policy: Policy) -> None:
        with self.pool.change() as change:
            rate = "as measured" if policy.rate is None else f"{policy.rate:g} times in a year"
            change.put(Setting(_SETTING, policy.text()), "spares are "
                       f"{'kept' if policy.keeps else 'not kept'}: enough for "
                       f"{policy.probability:g} of the time, GPUs fail {rate}, and a repair takes "
                       f"{policy.repair_days:g} days")

    def plan(self) -> list[Plan]:
        """Spares of each model."""
        return plan(self.pool.all(Gpu), self.failures, self.policy, self.pool.clock(),
                    self._closed())

    def _closed(self) -> set[int]:
        return {node.serial for node in self.pool.all(Node) if node.closed}

    def turn(self) -> None:
        """Keep free GPUs back as far as spares are missing, and let superfluous spares go.

        Spares by the hand of an operator count, and stay.

        Raises
        ------
        StoreError, Deposed
        """
        policy, moves = self.policy, list[tuple[str, Cause]]()
        own = [gpu for gpu in self.pool.all(Gpu)
               if gpu.state is State.SPARE and gpu.cause is Cause.KEPT]
        if policy.keeps:
            for one in self.plan():
                missing = one.wanted - one.held
                moves += [(name, Cause.KEPT) for name in self._best(one.model, missing)]
                mine = [gpu.name for gpu in own if gpu.model == one.model]
                moves += [(name, Cause.UNKEPT) for name in mine[:max(0, -missing)]]
        else:
            moves = [(gpu.name, Cause.UNKEPT) for gpu in own]
        if moves:
            with self.pool.change() as change:
                for name, cause in moves:
                    change.move(name, cause)

    def _best(self, model: str, count: int) -> list[str]:
        """Free GPUs to be kept back: joined boxes stay whole, spares are in several boxes if there
        are several, and boxes with the fewest free GPUs give first."""
        if count <= 0:
            return []
        closed, found = self._closed(), list[str]()
        free = {gpu.name: gpu for gpu in self.pool.all(Gpu) if gpu.state is State.FREE
                and not gpu.task and gpu.model == model and gpu.box not in closed}
        joined = {node.serial for node in self.pool.all(Node) if node.kind is Kind.JOINED}
        spares = Counter(gpu.box for gpu in self.pool.all(Gpu) if gpu.state is State.SPARE)
        left = Counter(gpu.box for gpu in free.values())
        while free and len(found) < count:
            best = min(free.values(), key=lambda gpu: (
                gpu.box in joined, spares[gpu.box], left[gpu.box], gpu.box, gpu.slot))
            del free[best.name]
            found.append(best.name)
            spares[best.box] += 1
            left[best.box] -= 1
        return found
