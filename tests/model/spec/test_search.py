"""The search of the specification's models: complete, shortest way, limits."""

import pytest

from dxpu_model.spec.search import Model, can_reach, search
from dxpu_model.spec.wire import Wire


class Jugs(Model):
    """Two jugs of 3 and 5 litres; known: 16 states, 4 litres are there after 6 actions at least."""

    def __init__(self, avoid=None, rest=True):
        self.avoid, self.rest = avoid, rest

    def initial(self):
        return 0, 0

    def actions(self, state):
        small, large = state
        yield "fill small", (3, large)
        yield "fill large", (small, 5)
        yield "empty small", (0, large)
        yield "empty large", (small, 0)
        moved = min(small, 5 - large)
        yield "small into large", (small - moved, large + moved)
        moved = min(large, 3 - small)
        yield "large into small", (small + moved, large - moved)

    def wrong(self, state):
        return "measured" if state[1] == self.avoid else None


class Countdown(Model):
    """Ends at 0; or one too early, where that is wrong."""

    def __init__(self, *, end):
        self.end = end

    def initial(self):
        return 5

    def actions(self, state):
        if state > self.end:
            yield f"to {state - 1}", state - 1
        yield "wait", state

    def at_rest(self, state):
        return state == 0


def test_visits_every_state_once():
    result = search(Jugs())
    assert (result.states, result.complete, result.fault) == (16, True, None)
    assert result.holds
    assert result.trace == ()


def test_finds_the_shortest_way():
    result = search(Jugs(avoid=4))
    assert result.fault == "measured"
    assert result.depth == len(result.trace) == 6
    state = (0, 0)
    for name in result.trace:
        state = dict(Jugs().actions(state))[name]
    assert state[1] == 4


def test_a_wrong_start_has_no_way():
    result = search(Jugs(avoid=0))
    assert (result.fault, result.trace, result.depth) == ("measured", (), 0)


def test_limits_leave_the_search_open():
    for limits in ({"max_states": 5}, {"max_depth": 2}):
        result = search(Jugs(), **limits)
        assert not result.complete and not result.holds and result.fault is None
    assert search(Jugs(), max_states=5).states == 5
    assert search(Jugs(), max_depth=2).depth == 2
    assert search(Jugs(avoid=4), max_depth=5).fault is None
    assert search(Jugs(avoid=4), max_depth=6).fault == "measured"


def test_deadlock_is_where_nothing_changes_and_should():
    assert search(Countdown(end=0)).holds
    result = search(Countdown(end=1))
    assert "deadlock" in result.fault
    assert result.trace == ("to 4", "to 3", "to 2", "to 1")


def test_can_reach():
    assert can_reach(Countdown(end=0), 5, lambda n: n == 0)
    assert not can_reach(Countdown(end=1), 5, lambda n: n == 0)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_wire_keeps_every_frame(order):
    wire = Wire()
    assert wire.put(0, "a", "b", "c") == wire.put(wire.put(0, "c"), "b", "a")
    names = {1: "a", 2: "b", 3: "c"}
    now = 0
    for count, number in enumerate(order, 1):
        now = wire.put(now, names[number], names[number])
        assert set(wire.frames(now)) == {names[n] for n in order[:count]}
        assert len(wire.frames(now)) == count
