"""Credits of a slot, in both directions: granted by the box, and granted to the box.

Limits are absolute and count from the beginning of a life of the slot, modulo 2^16. The difference
between limit and use is signed, so the next limit heals a lost, doubled or late limit. Data counts
in units of 16 bytes; prefixes and digest count with the header.

Ref: docs/reference/wire-format.md, "Credit extension"; docs/explanation/flow-control.md
"""

from collections.abc import Iterable, Sequence

from dxpu.fabric.wire.format import ACK_ENTRIES
from dxpu_model.wire import Credit

from .arq import MODULUS, ahead

__all__ = ["CLASSES", "GRANTS", "Accounts", "Entries", "Grants"]

CLASSES = range(ACK_ENTRIES)
#: Initial headers and units of each slot: posted, non-posted, completions.
GRANTS = ((32, 160), (16, 16), (32, 160))

Entries = tuple[Credit, Credit, Credit]


def _left(limit: int, used: int) -> int:
    """``limit - used`` as a signed number of 16 bits."""
    return (limit - used + 0x8000) % 0x10000 - 0x8000


class Accounts:
    """Credits granted by the box for a slot, less the credits used.

    All credits end when the event that begins a life (BIND, RESET) gets its number. New limits
    count from the first frame on that acknowledges this event, and only with the generation of the
    binding.
    """

    def __init__(self) -> None:
        self._generation = self._first = 0
        self._begun = self._heard = False
        self._limits: dict[int, tuple[int, int]] = {}
        self._used = {cls: (0, 0) for cls in CLASSES}
        #: Number of entries that did not count.
        self.refused = 0

    def begin(self, generation: int, seq: int) -> None:
        """Begin a life with an event of number ``seq``."""
        self.end()
        self._begun, self._generation, self._first = True, generation & 0xFF, seq + 1

    def end(self) -> None:
        """Drop all credits."""
        self._begun = self._heard = False
        self._limits = {}
        self._used = {cls: (0, 0) for cls in CLASSES}

    def learn(self, ack: int, entries: Iterable[Credit]) -> None:
        """Take the limits of a frame whose ACK is not older than the newest ACK."""
        if not self._begun or not (
                self._heard or ahead(ack, self._first) < MODULUS // 2):
            return
        for entry in entries:
            if entry.generation == self._generation:
                self._heard = True
                self._limits[entry.cls] = entry.header_limit, entry.data_limit
            elif entry.generation != ~self._generation & 0xFF:  # the inverse means: no life yet
                self.refused += 1

    def allows(self, cls: int, units: int) -> bool:
        """Whether a TLP with ``units`` units of data may be sent."""
        if cls not in self._limits:
            return False
        limits, used = self._limits[cls], self._used[cls]
        return _left(limits[0], used[0]) > 0 and _left(limits[1], used[1]) >= units

    def spend(self, cls: int, units: int) -> None:
        """Use credits for a TLP."""
        headers, data = self._used[cls]
        self._used[cls] = (headers + 1) & 0xFFFF, (data + units) & 0xFFFF


class Grants:
    """Credits granted to the box for a slot, and the limits due to be sent.

    A limit that has changed goes with the next frame for the slot, and once more after an eighth of
    ``refresh`` (:data:`AGAIN`), as the frame may have been lost. All limits are sent again after
    ``refresh``.

    Parameters
    ----------
    initial : three pairs of int
        Headers and units of each class.
    refresh : float
        In seconds.
    """

    AGAIN = 1 / 8

    def __init__(self, initial: Sequence[tuple[int, int]], refresh: float) -> None:
        self._initial, self._refresh = tuple(initial), refresh
        self._generation = 0
        #: The slot has a life.
        self.open = False
        self._limits = list(self._initial)
        self._used = [(0, 0) for _ in CLASSES]
        self._due: set[int] = set()
        self._again = self._all = 0.0

    def begin(self, generation: int, now: float) -> None:
        """Begin a life: all limits are due."""
        self._generation, self.open = generation & 0xFF, True
        self._limits = list(self._initial)
        self._used = [(0, 0) for _ in CLASSES]
        self._due, self._all = set(CLASSES), now + self._refresh
        self._again = now + self._refresh * self.AGAIN

    def end(self) -> None:
        """End the life."""
        self.open = False
        self._due.clear()

    def take(self, cls: int, units: int) -> bool:
        """Count a TLP that came; returns whether it had credits."""
        (headers, data), (limit, most) = self._used[cls], self._limits[cls]
        if _left(limit, headers) < 1 or _left(most, data) < units:
            return False
        self._used[cls] = (headers + 1) & 0xFFFF, (data + units) & 0xFFFF
        return True

    def release(self, cls: int, units: int, now: float) -> None:
        """Return the credits of a handled TLP."""
        headers, data = self._limits[cls]
        self._limits[cls] = (headers + 1) & 0xFFFF, (data + units) & 0xFFFF
        self._due.add(cls)
        self._again = now + self._refresh * self.AGAIN

    def entries(self) -> Entries:
        """All limits, for an ACK; without a life, entries that no receiver accepts as limits."""
        generation = self._generation if self.open else ~self._generation & 0xFF
        p, np, cpl = (Credit(cls, generation, *(self._limits[cls] if self.open else (0, 0)))
                      for cls in CLASSES)
        return p, np, cpl

    def extension(self) -> Credit | None:
        """A due limit for a frame of the slot; no longer due afterwards."""
        if not self._due:
            return None
        cls = min(self._due)
        self._due.discard(cls)
        return self.entries()[cls]

    def told(self) -> None:
        """Note that a frame carries all limits."""
        self._due.clear()

    def due(self, now: float) -> bool:
        """Whether a limit is due now."""
        if self.open and now >= self._all:
            self._due = set(CLASSES)
            self._again, self._all = 0.0, now + self._refresh
        elif self.open and self._again and now >= self._again:
            self._due, self._again = set(CLASSES), 0.0
        return bool(self._due)

    def deadline(self) -> float | None:
        """Time of the next call of :meth:`due`, if nothing comes before."""
        if not self.open:
            return None
        return min(self._all, self._again) if self._again else self._all
