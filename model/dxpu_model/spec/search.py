"""Breadth-first search of every state that a model can reach, with the shortest way to a fault."""

import time
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

__all__ = ["Model", "Result", "can_reach", "search"]

State = Hashable


class Model:
    """What a search asks. States are values that hash; a model itself never changes.

    The actions of a state are everything that may happen next, whoever does it: both ends, the
    network, an operator. The search takes no side: what must hold, holds in whatever order.
    """

    def initial(self) -> State:
        """Where everything begins."""
        raise NotImplementedError

    def actions(self, state) -> Iterable[tuple[str, State]]:
        """What may happen: name and next state. An action that changes nothing may be given."""
        raise NotImplementedError

    def wrong(self, state) -> str | None:
        """What is wrong in this state, if anything. Always asked, once for each state."""
        return None

    def at_rest(self, state) -> bool:
        """Whether it is right that nothing more can happen; asked where there is no action."""
        return True


class Result(NamedTuple):
    """Outcome of a search."""

    states: int  #: different states that were reached
    depth: int  #: actions from the start to the farthest of them
    complete: bool  #: whether every state that can be reached was looked at
    fault: str | None  #: what is wrong in the last state of ``trace``
    trace: tuple[str, ...]  #: the fewest actions that lead from the start to the fault
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether all was searched and nothing was wrong."""
        return self.complete and self.fault is None


def search(model: Model, *, max_states: int | None = None, max_depth: int | None = None,
           tick: Callable[[int, int], None] | None = None) -> Result:
    """Visit all states in the order of their distance; stop at the first that is wrong.

    Parameters
    ----------
    max_states, max_depth : int
        Give up (``complete`` is then false) beyond so many states or actions.
    tick : function
        Called now and then with the states and the depth reached so far.
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
    """Whether some sequence of actions leads from ``start`` to a state that is a goal."""
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
    """Names of the actions from the start to ``last``; they are not kept, but found again."""
    names = []
    while (before := came_from[last]) is not None:
        names.append(next(name for name, after in model.actions(before) if after == last))
        last = before
    return tuple(reversed(names))
