"""dxpu_manager.allocation: a place is found if there is one, the best by the rules."""

from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager.allocation import (
    SATURATES, Inventory, Kind, Paths, Place, Where, Wish, lacks, place,
)

HOST = 0x100


def pool(*boxes, ports=8, paths=Paths()):
    """Boxes as a kind and models of GPUs; a model in brackets is not free."""
    places, taken = [], []
    for n, (_, *models) in enumerate(boxes):
        for slot, model in enumerate(models, 1):
            places.append(Place(f"{n}.{slot}", n, model.strip("()")))
            if model.startswith("("):
                taken.append(f"{n}.{slot}")
    free = Inventory({n: box[0] for n, box in enumerate(boxes)}, places, {HOST: ports, 0x1FF: 999},
                     paths)
    free.take(0x1FF, taken)
    return free


J, S = Kind.JOINED, Kind.SWITCH


@pytest.mark.parametrize("boxes, wish, found", [
    # One: behind a switch, in the box that is fullest already.
    (((J, "a"), (S, "a", "a"), (S, "a", "(a)")), {}, ("2.1",)),
    # Only joined boxes: one that is broken up already, else the smallest.
    (((J, "a", "a"), (J, "(a)", "a", "a", "a")), {}, ("1.2",)),
    (((J, "a", "a", "a"), (J, "a", "a")), {}, ("1.1",)),
    # Several: in a joined box, the one with the fewest left.
    (((S, "a", "a"), (J, "a", "a", "a"), (J, "a", "a")), {"count": 2}, ("2.1", "2.2")),
    (((S, "a", "a"), (J, "a", "(a)")), {"count": 2}, ("0.1", "0.2")),
    # As few boxes as can be.
    (((S, "a"), (S, "a", "a"), (S, "a")), {"count": 3}, ("1.1", "1.2", "0.1")),
    (((S, "a"), (S, "a", "a"), (S, "a")), {"count": 3, "where": Where.BOX}, None),
    (((S, "a", "a", "a"), (J, "a", "a")), {"count": 3, "where": Where.JOINED}, None),
    (((S, "a", "a", "a"), (J, "a", "a")), {"count": 2, "where": Where.JOINED}, ("1.1", "1.2")),
    (((S, "a"), (S, "a", "a", "a"), (J, "a")), {"count": 2, "where": Where.APART}, ("2.1", "1.1")),
    (((S, "a", "a"),), {"count": 2, "where": Where.APART}, None),
    # Models.
    (((S, "a", "b"), (S, "b", "b")), {"count": 2, "model": "b"}, ("1.1", "1.2")),
    (((S, "a"), (S, "b")), {"count": 2, "model": "b"}, None),
    (((S, "a"),), {"model": "c"}, None),
])
def test_rules(boxes, wish, found):
    free = pool(*boxes)
    assert place(Wish(HOST, **wish), free) == found
    assert bool(lacks(Wish(HOST, **wish), free)) == (found is None)


FULL = (S, "(a)", "(a)", "(a)", "(a)", "a", "a", "a")


@pytest.mark.parametrize("boxes, paths, wish, found", [
    # Four GPUs are what a path carries: one more goes to another box, though that is whole.
    ((FULL, (S, *8 * "a")), {}, {}, ("1.1",)),
    # Two paths carry eight.
    ((FULL, (S, *8 * "a")), {0: 2}, {}, ("0.5",)),
    # If all have too many, to the one with the fewest too many.
    (((S, *5 * ("(a)",), "a"), (*FULL, "a")), {}, {}, ("1.5",)),
    # Several stay where boxes are broken up already; paths decide among those alike.
    ((FULL, (S, *8 * "a")), {}, {"count": 2}, ("0.5", "0.6")),
    ((FULL, (S, "(a)", "a", "a", "a")), {}, {"count": 3}, ("1.2", "1.3", "1.4")),
    # Each in another box: those whose paths have room.
    ((FULL, (S, "a"), (S, "a")), {}, {"count": 2, "where": Where.APART}, ("1.1", "2.1")),
])
def test_paths_are_balanced(boxes, paths, wish, found):
    assert place(Wish(HOST, **wish), pool(*boxes, paths=Paths(paths))) == found


def test_a_pool_is_filled_evenly():
    """Boxes behind switches, of which each has up to what its path carries before one has more."""
    free = pool(*4 * ((S, *8 * "a"),), ports=99)
    for _ in range(4 * SATURATES):
        free.take(HOST, place(Wish(HOST), free))
    assert [left for *_, left, _ in free.boxes("")] == 4 * [8 - SATURATES]
    for _ in range(4):
        free.take(HOST, place(Wish(HOST), free))
    assert [left for *_, left, _ in free.boxes("")] == 4 * [7 - SATURATES]


def test_a_path_that_is_wanted():
    """Only boxes where it leads, and where the host takes no other one yet."""
    boxes = (S, "a"), (S, "a"), (S, "a")
    paths = Paths({HOST: 2, 0: 1, 1: 2, 2: 2}, {(HOST, 1): 0})
    free = pool(*boxes, paths=paths)
    assert [list(paths.between(HOST, box)) for box in range(3)] == [[0], [0], [0, 1]]
    assert place(Wish(HOST, path=1), free) == ("2.1",)
    assert lacks(Wish(HOST, 2, path=1), free) == "there is 1 free GPU by path 1"
    assert place(Wish(HOST, path=2), free) is None
    assert str(Wish(HOST, 2, where=Where.BOX, path=0)) == "2 GPUs in one box by path 0"
    with pytest.raises(ValueError, match="^a path is 0 to 15, not 16$"):
        Wish(HOST, path=16)


def allowed(wish, gpus, free):
    """Whether these GPUs are what the wish says, by its words."""
    of = {box: kind for box, kind, *_ in free.boxes("")}
    boxes = [free.places[gpu].box for gpu in gpus]
    return all((
        len(set(gpus)) == wish.count,
        not wish.model or all(free.places[gpu].model == wish.model for gpu in gpus),
        wish.where is not Where.APART or len(set(boxes)) == len(boxes),
        wish.where not in (Where.BOX, Where.JOINED) or len(set(boxes)) == 1,
        wish.where is not Where.JOINED or of[boxes[0]] is J))


MODELS = st.sampled_from(("a", "b", "(a)"))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from((J, S)), st.lists(MODELS, max_size=4)), max_size=3),
       st.integers(1, 4), st.sampled_from(("", "a", "b")), st.sampled_from(list(Where)),
       st.integers(0, 5))
def test_a_place_is_found_if_there_is_one(boxes, count, model, where, ports):
    free = pool(*((kind, *models) for kind, models in boxes), ports=ports)
    wish = Wish(HOST, count, model, where)
    left = [gpu for _, _, gpus, _, _ in free.boxes("") for gpu in gpus]
    possible = [gpus for gpus in combinations(left, count) if allowed(wish, gpus, free)]
    found = place(wish, free)
    if count > ports or not possible:
        assert found is None and "\n" not in lacks(wish, free) != ""
        return
    assert allowed(wish, found, free) and set(found) <= set(left) and not lacks(wish, free)
    fewest = min(len({free.places[gpu].box for gpu in gpus}) for gpus in possible)
    if where is not Where.APART:
        assert len({free.places[gpu].box for gpu in found}) == fewest
    # What is taken is gone, and comes back.
    before, copy = free.boxes(""), free.copy()
    free.take(HOST, found)
    assert set(left) - set(found) == {gpu for _, _, gpus, _, _ in free.boxes("") for gpu in gpus}
    assert copy.boxes("") == before and free.ports[HOST] == ports - count
    free.give(HOST, found)
    assert free.boxes("") == before


@pytest.mark.parametrize("wish, ports, says", [
    ({"count": 2}, 1, "host 00000100 has 1 free port"),
    ({"count": 3}, 8, "there are 2 free GPUs"),
    ({"count": 2, "where": Where.BOX}, 8, "no box has more than 1 free GPU"),
    ({"count": 2, "where": Where.JOINED, "model": "a"}, 8,
     "no joined box has more than 1 free GPU of model a"),
    ({"count": 3, "where": Where.APART}, 8, "there are free GPUs in 2 boxes"),
])
def test_what_it_lacks(wish, ports, says):
    assert lacks(Wish(HOST, **wish), pool((J, "a"), (S, "a"), ports=ports)) == says


def test_wrong_wishes():
    with pytest.raises(ValueError, match="^a wish is for 1 GPU or more, not 0$"):
        Wish(HOST, 0)
    assert lacks(Wish(7), pool((S, "a"))) == "there is no host 00000007"
    assert str(Wish(HOST, 4, "V100", Where.JOINED)) == "4 GPUs of model V100 in one joined box"
    assert str(Wish(HOST)) == "1 GPU"
