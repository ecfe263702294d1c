"""Retransmission inside one session: go-back-N and selective repeat, window against modulus.

Frames are numbered; only the number modulo ``modulus`` travels. The sender keeps a frame in its
replay memory until an ACK passes the frame, and may send each frame again at any time (a timer, a
NAK, another path: the model needs no reason). The receiver commits the next frame and acknowledges
all frames committed. Early frames are stored and named in a SACK (selective repeat) or refused
(go-back-N). Late frames are acknowledged again.

The network drops, doubles and reorders. A copy of frame n may be on its way until the sender has
sent ``life`` frames more, and not longer: ``life`` is the frame lifetime, in frames. Selective
repeat then needs ``modulus >= life + window``, go-back-N ``modulus > life``.

All numbers are relative to the oldest unacknowledged frame. So infinite traffic has finitely many
states, and the search covers every number of frames and every wrap of the counter.
"""

from typing import NamedTuple

from .search import Model, can_reach

__all__ = ["FLAWS", "Arq"]

#: Flawed designs: name and behaviour.
FLAWS = {
    "ACK before commit": "a frame is acknowledged when it arrives, and may still be refused after",
    "ACK read as the last one taken": "the sender frees the frame that the receiver asks for",
    "replay memory below the window": "a new frame is written over one that is not acknowledged",
    "stored frame given up": "the receiver may drop a stored frame that a SACK has named",
}

DATA, ACK = 0, 1


class State(NamedTuple):
    """Both ends and the network. Frame 0 is the oldest frame without an acknowledgement."""

    sent: int = 0  #: frames sent from frame 0 on
    taken: int = 0  #: next frame that the receiver commits
    stored: frozenset = frozenset()  #: early frames
    named: frozenset = frozenset()  #: frames named by a SACK: not sent again
    wire: frozenset = frozenset()  #: (DATA, number, content), (ACK, next, frames stored)
    fault: str | None = None


class Arq(Model):
    """A sender and a receiver that share one numbering.

    Parameters
    ----------
    selective : bool
        Selective repeat; else go-back-N.
    window, modulus, life : int
        Numbers of frames, as the docstring of the module explains.
    flaw : str
        None or a key of :data:`FLAWS`.
    """

    def __init__(self, *, selective, window, modulus, life, flaw=None):
        if not 1 <= window <= life:
            raise ValueError(f"window must be from 1 to life ({life}), not {window!r}")
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        self.selective, self.window, self.modulus = selective, window, modulus
        self.life, self.flaw = life, flaw
        self._ends: dict[State, bool] = {}

    def initial(self):
        return State()

    def actions(self, state):
        if state.sent < self.window:
            yield f"sender: DATA {state.sent}", self._send(
                state._replace(sent=state.sent + 1), state.sent)
        for number in range(state.sent):
            if number not in state.named:
                yield f"sender: DATA {number} again", self._send(state, number)
        if self.flaw == "stored frame given up":
            for number in sorted(state.stored):
                yield (f"receiver drops stored {number}",
                       state._replace(stored=state.stored - {number}))
        for frame in sorted(state.wire, key=_order):
            if frame[0] == DATA:
                yield from self._take(state, *frame[1:])
            else:
                yield self._acknowledged(state, *frame[1:])

    # Sender

    def _send(self, state, number):
        content = number
        if self.flaw == "replay memory below the window":
            entries = self.window - 1
            content += (state.sent - 1 - number) // entries * entries
        return self._put(state, (DATA, number, content))

    def _put(self, state, frame):
        """Put a frame on the wire; frames beyond their lifetime vanish."""
        oldest = state.sent - self.life
        return state._replace(wire=frozenset(f for f in state.wire | {frame} if f[1] >= oldest))

    def _acknowledged(self, state, number, early):
        name = f"sender takes ACK {number}" + (f", stored {_list(early)}" if early else "")
        passed = number % self.modulus  # relative to frame 0
        if self.flaw == "ACK read as the last one taken":
            passed = (number + 1) % self.modulus
        if passed > state.sent:
            return name, state  # an old ACK
        named = state.named | {n for n in ((passed + e - number) for e in early) if n < state.sent}
        wrong = [n for n in named if n >= state.taken and n not in state.stored]
        if wrong and self.flaw is None:
            return name, state._replace(fault=f"frame {wrong[0]} counts as stored, and is not")
        if passed:
            name += f" (frame {passed} is called 0 from here on)"
        if passed > state.taken:
            return name, state._replace(
                fault=f"frame {state.taken} is freed, and was never committed")
        return name, State(
            state.sent - passed, state.taken - passed, _less(state.stored, passed),
            _less(named, passed),
            frozenset((f[0], f[1] - passed, f[2] - passed if f[0] == DATA
                       else tuple(e - passed for e in f[2])) for f in state.wire))

    # Receiver

    def _take(self, state, number, content):
        name = f"receiver takes DATA {number}"
        ahead = (number - state.taken) % self.modulus
        if ahead == 0:
            if content != state.taken:
                yield name, state._replace(
                    fault=f"frame {content} was committed in place of {state.taken}")
                return
            if self.flaw == "ACK before commit":
                yield (f"{name}, acknowledges and drops it",
                       self._put(state, (ACK, state.taken + 1, ())))
            taken, stored = state.taken + 1, set(state.stored)
            while taken in stored:
                stored.remove(taken)
                taken += 1
            yield name, self._answer(state._replace(taken=taken, stored=frozenset(stored)))
        elif ahead < self.window and self.selective:
            if number != state.taken + ahead:
                yield name, state._replace(
                    fault=f"frame {number} was stored in place of {state.taken + ahead}")
            else:
                yield name, self._answer(state._replace(stored=state.stored | {number}))
        else:
            yield name, self._answer(state)

    def _answer(self, state):
        return self._put(state, (ACK, state.taken, tuple(sorted(state.stored))))

    # What must hold

    def wrong(self, state):
        if state.fault is None and not self._ends_well(state):
            return "no way to get all frames committed and acknowledged"
        return state.fault

    def _ends_well(self, state):
        """Whether both ends alone can get everything committed and acknowledged."""
        start = state._replace(wire=frozenset())
        known = self._ends.get(start)
        if known is None:
            known = self._ends[start] = can_reach(
                Arq(selective=self.selective, window=self.window, modulus=self.modulus,
                    life=self.life), start, lambda s: s.sent == 0)
        return known


def _order(frame):
    return frame[0], frame[1], frame[2] if frame[0] == ACK else (frame[2],)


def _less(numbers, passed):
    return frozenset(n - passed for n in numbers if n >= passed)


def _list(numbers):
    return ", ".join(map(str, numbers))
