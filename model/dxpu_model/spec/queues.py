"""Deadlock: the need for receive pools, transmit space and bypass for every class.

Two PCIe devices, a root complex and a GPU, have the fabric between them. In each direction TLPs
wait in a transmit queue, travel to a receive pool at the far side, and leave to the far device.
Only classes matter here: P(osted), N(on-posted), C(ompletion). A transmit queue is a string, the
oldest TLP first.

PCIe obliges a device to take P and C at any time. A device may refuse N as long as its own transmit
queue has no room for the completion (PCIe Base Specification, 2.4.1).

Devices make any number of requests, or none. So a state with waiting TLPs in which only new
requests can happen is a deadlock.
"""

from typing import NamedTuple

from .search import Model

__all__ = ["Queues"]

DEVICES = ("root complex", "GPU")


class State(NamedTuple):
    """For each direction, from the root complex and from the GPU."""

    transmit: tuple[str, str] = ("", "")
    receive: tuple[str, str] = ("", "")


class Queues(Model):
    """The fabric's queues in both directions.

    Parameters
    ----------
    pools : bool
        Each class has its own receive pool; else all classes share one queue.
    spaces : bool
        Each class has its own space in the transmit queue; else all classes share the space.
    bypass : bool
        In the transmit queue P and C may pass N; else the queue is in order.
    transmit_room, receive_room : dict
        Space for each class, in TLPs; where classes share, the sum counts.
    """

    def __init__(self, *, pools=True, spaces=True, bypass=True, transmit_room=None,
                 receive_room=None):
        self.pools, self.spaces, self.bypass = pools, spaces, bypass
        self.transmit_room = transmit_room or {"P": 1, "N": 2, "C": 1}
        self.receive_room = receive_room or {"P": 1, "N": 1, "C": 1}

    def initial(self):
        return State()

    def actions(self, state):
        for device, name in enumerate(DEVICES):
            for kind in "NP":
                if self._fits(state.transmit[device], kind, self.transmit_room, self.spaces):
                    yield f"{name}: {kind}", self._queue(state, device, kind)
        yield from self._moves(state)

    def wrong(self, state):
        if any((*state.transmit, *state.receive)) and not any(self._moves(state)):
            return "deadlock: nothing moves"
        return None

    def _moves(self, state):
        """Actions without new requests."""
        for device, name in enumerate(DEVICES):
            yield from self._travel(state, device, name)
            yield from self._take(state, device, name)

    def _travel(self, state, device, name):
        """Move a TLP from the device's transmit queue to the receive pool at the far side."""
        queue, pool = state.transmit[device], state.receive[device]
        for place, kind in enumerate(queue):
            before = queue[:place]
            if before and not (self.bypass and kind in "PC" and set(before) <= {"N"}):
                continue  # nothing passes P; P and C pass N only
            if not self._fits(pool, kind, self.receive_room, self.pools):
                continue
            after = "".join(sorted(pool + kind)) if self.pools else pool + kind
            yield f"{kind} from the {name} crosses the fabric", state._replace(
                transmit=_set(state.transmit, device, before + queue[place + 1:]),
                receive=_set(state.receive, device, after))

    def _take(self, state, device, name):
        """Let the device take a TLP of the other device."""
        pool = state.receive[1 - device]
        for kind in dict.fromkeys(pool if self.pools else pool[:1]):
            after = state._replace(
                receive=_set(state.receive, 1 - device, pool.replace(kind, "", 1)))
            if kind == "N":
                if not self._fits(state.transmit[device], "C", self.transmit_room, self.spaces):
                    continue
                after = self._queue(after, device, "C")
            yield f"{name} takes {kind}" + (", answers C" if kind == "N" else ""), after

    @staticmethod
    def _fits(queue, kind, room, own):
        return queue.count(kind) < room[kind] if own else len(queue) < sum(room.values())

    @staticmethod
    def _queue(state, device, kind):
        return state._replace(
            transmit=_set(state.transmit, device, state.transmit[device] + kind))


def _set(pair, index, value):
    return (value, pair[1]) if index == 0 else (pair[0], value)
