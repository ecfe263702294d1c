"""Breadth-first search of all reachable states of a model, with the shortest way to a fault."""

import time
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

__all__ = ["Model", "Result", "can_reach", "search"]

State = Hashable


class Model:
    """Interface of a model for the search. States are hashable values; a model never changes.

    The actions of a state are all events that may happen next: of both ends, of the network, of an
    operator. The search prefers no order: a property that holds, holds in every order.
    """

    def initial(self) -> State:
        """Initial state."""
        raise NotImplementedError

    def actions(self, state) -> Iterable[tuple[str, State]]:
        """Possible actions: name and next state. An action may leave the state unchanged."""
        raise NotImplementedError

    def wrong(self, state) -> str | None:
        """Fault of this state, or None; called once for each state."""
        return None

    def at_rest(self, state) -> bool:
        """Whether the state may be final; called for states without actions."""
        return True


class Result(NamedTuple):
    """Outcome of a search."""

    states: int  #: number of different states reached
    depth: int  #: actions from the start to the farthest state
    complete: bool  #: every reachable state was examined
    fault: str | None  #: fault of the last state of ``trace``
    trace: tuple[str, ...]  #: shortest sequence of actions from the start to the fault
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the search was complete and found no fault."""
        return self.complete and self.fault is None


def search(model: Model, *, max_states: int | None = None, max_depth: int | None = None,
           tick: Callable[[int, int], None] | None = None) -> Result:
    """Visit all states in the order of their distance; stop at the first fault.

    Parameters
    ----------
    max_states, max_depth : int
        Limits of states and actions; beyond a limit the search ends with ``complete`` false.
    tick : function
        Called now and then with the numbers of states and of actions reached so far.
    """
    begin = time.perf_counter()
    start = model.initial()
    came_from: dict[State, State | None] = {start: None}
    frontier, depth, complete = [start], 0, True

    def result(fault=None, last=None):
        return Result(len(came_from), depth, complete, fault,
                      _trace(model, came_from, last) if fault else (), time.perf_counter() - begin)

    if fault := model.wrong(start):
        return result(fault, start)
    while frontier:
        if depth == max_depth:
            complete = False
            break
        following = []
        for state in frontier:
            stuck = True
            for _, after in model.actions(state):
                if after == state:
                    continue
                stuck = False
                if after in came_from:
                    continue
                came_from[after] = state
                if fault := model.wrong(after):
                    depth += 1
                    return result(fault, after)
                following.append(after)
                if tick is not None and not len(came_from) % 4096:
                    tick(len(came_from), depth + 1)
                if len(came_from) == max_states:
                    complete = False
                    depth += 1
                    return result()
            if stuck and not model.at_rest(state):
                return result("deadlock: nothing can happen any more", state)
        frontier = following
        depth += bool(following)
    return result()


def can_reach(model: Model, start: State, goal: Callable[[State], bool]) -> bool:
    """Whether some sequence of actions leads from ``start`` to a goal state."""
    seen, frontier = {start}, [start]
    while frontier:
        state = frontier.pop()
        if goal(state):
            return True
        for _, after in model.actions(state):
            if after not in seen:
                seen.add(after)
                frontier.append(after)
    return False


def _trace(model, came_from, last):
    """Names of the actions from the start to ``last``, found again by comparing states."""
    names = []
    while (before := came_from[last]) is not None:
        names.append(next(name for name, after in model.actions(before) if after == last))
        last = before
    return tuple(reversed(names))
