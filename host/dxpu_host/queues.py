"""TLPs of a slot that wait for credits, and their order.

Nothing passes a posted TLP. Posted TLPs and completions pass a waiting non-posted TLP, and each
other as PCIe allows (PCIe Base 5.0, 2.4.1; docs/explanation/order.md).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dxpu.fabric.wire.format import CreditClass
from dxpu_model.tlp import classify

__all__ = ["ClassQueues", "Waiting", "class_of", "units_of"]


def class_of(tlp: bytes) -> int:
    """Credit class of a TLP."""
    return int(classify(tlp).cls.value)


def units_of(tlp: bytes) -> int:
    """Data credits of a TLP."""
    return (classify(tlp).payload_dwords + 3) // 4


@dataclass(frozen=True)
class Waiting:
    """A TLP to be sent. ``sent`` is called when the TLP has left."""

    tlp: bytes
    cls: int
    units: int
    number: int
    sent: Callable[[], None] | None


class ClassQueues:
    """Waiting TLPs, by class and in the order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[Waiting]] = {cls: deque() for cls in CreditClass}
        self._number = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def waits(self, cls: int) -> bool:
        """Whether a TLP of this class waits."""
        return bool(self._queues[cls])

    def put(self, tlp: bytes, sent: Callable[[], None] | None = None) -> None:
        """Add a TLP."""
        cls = class_of(tlp)
        self._queues[cls].append(Waiting(tlp, cls, units_of(tlp), self._number, sent))
        self._number += 1

    def first(self, may: Callable[[int, int], bool]) -> Waiting | None:
        """The oldest TLP that may leave; ``may(class, units)`` tells whether credits suffice."""
        posted = self._queues[CreditClass.P]
        barrier = posted[0].number if posted else self._number
        heads = [queue[0] for queue in self._queues.values() if queue]
        allowed = [head for head in heads if head.number <= barrier
                   and may(head.cls, head.units)]
        return min(allowed, key=lambda head: head.number, default=None)

    def take(self, head: Waiting) -> None:
        """Remove ``head``, the result of :meth:`first`, and report its departure."""
        self._queues[head.cls].popleft()
        if head.sent is not None:
            head.sent()

    def clear(self) -> None:
        """Remove all waiting TLPs."""
        for queue in self._queues.values():
            queue.clear()
