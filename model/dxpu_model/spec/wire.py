"""A network with any fault: frames get lost, doubled, delayed, delivered late."""

from collections.abc import Hashable

__all__ = ["Wire"]


class Wire:
    """The set of all frames ever sent, as the bits of an integer.

    Any frame of the set may be delivered at any time, and stays in the set: so a frame may come
    again, before or after any other frame. A lost frame is never delivered. So the set covers every
    network that does not invent frames.
    """

    def __init__(self):
        self._numbers: dict[Hashable, int] = {}
        self._frames: list[Hashable] = []
        self._sets: dict[int, tuple] = {0: ()}

    def put(self, on_wire: int, *frames: Hashable) -> int:
        """The set extended by ``frames``."""
        for frame in frames:
            number = self._numbers.get(frame)
            if number is None:
                number = self._numbers[frame] = len(self._frames)
                self._frames.append(frame)
            on_wire |= 1 << number
        return on_wire

    def frames(self, on_wire: int) -> tuple:
        """Frames of a set, oldest kind first."""
        known = self._sets.get(on_wire)
        if known is None:
            top = on_wire.bit_length() - 1
            known = self._sets[on_wire] = (*self.frames(on_wire & ~(1 << top)), self._frames[top])
        return known
