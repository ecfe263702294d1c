"""A wire that loses, doubles and reorders whole frames, from a seed."""

import random
from collections import Counter

__all__ = ["BadWire"]


class BadWire:
    """Faults of frames in one direction; each frame goes through :meth:`carry`.

    Parameters
    ----------
    rng : random.Random
    loss, double, swap : float
        Probabilities that a frame is lost, comes twice, comes after the next frame.

    Attributes
    ----------
    dead : bool
        All frames are lost.
    counts : Counter
        ``frames``, ``lost``, ``doubled``, ``swapped``.
    """

    def __init__(self, rng: random.Random, *, loss: float = 0.0, double: float = 0.0,
                 swap: float = 0.0):
        self._rng, self._loss, self._double, self._swap = rng, loss, double, swap
        self.dead = False
        self.counts: Counter = Counter()
        self._held: list[bytes] = []

    def carry(self, frame: bytes) -> list[bytes]:
        """Frames that come out now."""
        self.counts["frames"] += 1
        lost, doubled, swapped = (self._rng.random() < share for share in (
            self._loss, self._double, self._swap))
        if self.dead or lost:
            self.counts["lost"] += 1
            return []
        self.counts["doubled"] += doubled
        out = [frame] * (1 + doubled)
        if swapped and not self._held:
            self.counts["swapped"] += 1
            self._held = out
            return []
        out, self._held = out + self._held, []
        return out
