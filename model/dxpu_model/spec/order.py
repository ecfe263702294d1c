"""Order at the egress of a slot: nothing passes P; P and C pass an N refused by the device.

TLPs of one slot arrive in order and leave to a PCIe device, which may refuse N for any time. With a
queue for each class, N and C must know how many older P are still there: each N and C carries this
number, which goes down as P leave.
"""

from typing import NamedTuple

from .search import Model

__all__ = ["FLAWS", "Egress"]

#: Flawed egresses: name and behaviour.
FLAWS = {
    "one queue": "all classes wait in one queue",
    "no order": "a queue for each class, and no memory of which TLP is older",
    "C passes P": "only N wait for older P",
    "stamp that wraps": "N and C carry the number of P before them, modulo 4, and wait until "
                        "as many have left",
}


class State(NamedTuple):
    """Waiting TLPs, the oldest first: class, and the stamp for the flaw."""

    waiting: tuple[tuple[str, int], ...] = ()
    arrived: int = 0  #: number of P arrived, modulo 4
    left: int = 0  #: number of P that have left, modulo 4
    fault: str | None = None


class Egress(Model):
    """Class queues with ``room`` TLPs each, towards one PCIe device.

    The TLPs that may leave are derived from the whole history in ``waiting``. The TLPs that *do*
    leave depend on the limited knowledge of the correct or flawed egress.
    """

    def __init__(self, *, room, flaw=None):
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        self.room, self.flaw = room, flaw

    def initial(self):
        return State()

    def actions(self, state):
        for kind in "PNC":
            if sum(kind == k for k, _ in state.waiting) < self.room:
                stamp = state.arrived if self.flaw == "stamp that wraps" else 0
                yield f"{kind} arrives", self._counted(state._replace(
                    waiting=(*state.waiting, (kind, stamp)),
                    arrived=(state.arrived + (kind == "P")) % 4))
        for place in self._offered(state):
            kind = state.waiting[place][0]
            after = state._replace(waiting=state.waiting[:place] + state.waiting[place + 1:],
                                   left=(state.left + (kind == "P")) % 4)
            if any(k == "P" for k, _ in state.waiting[:place]):
                after = after._replace(fault=f"{kind} passes an older P")
            yield f"{kind} leaves", self._counted(after)

    def _counted(self, state):
        return state if self.flaw == "stamp that wraps" else state._replace(arrived=0, left=0)

    def _offered(self, state):
        """Places in ``waiting`` of the TLPs offered to the device."""
        heads = {}
        for place, (kind, _) in enumerate(state.waiting):
            heads.setdefault(kind, place)
        if self.flaw == "one queue":
            return [0] if state.waiting else []
        return [place for kind, place in heads.items() if kind == "P" or self._free(state, place)]

    def _free(self, state, place):
        """Whether the egress believes that no older P is there."""
        kind, stamp = state.waiting[place]
        if self.flaw == "no order" or (self.flaw == "C passes P" and kind == "C"):
            return True
        if self.flaw == "stamp that wraps":
            return stamp == state.left or not any(k == "P" for k, _ in state.waiting)
        return not any(k == "P" for k, _ in state.waiting[:place])

    def wrong(self, state):
        if state.fault:
            return state.fault
        offered = {state.waiting[place][0] for place in self._offered(state)}
        for place, (kind, _) in enumerate(state.waiting):
            older = {k for k, _ in state.waiting[:place]}
            if kind not in offered and kind not in older and "P" not in older:
                return f"{kind} waits, and no older P is there" + (
                    ", only a refused N" if older == {"N"} else "")
        return None
