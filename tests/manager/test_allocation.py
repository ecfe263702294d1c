"""dxpu_manager.allocation: a place is found if there is one, the best by the rules."""

from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager.allocation import Inventory, Kind, Place, Where, Wish, lacks, place

HOST = 0x100


def pool(*boxes, ports=8):
    """Boxes as a kind and models of GPUs; a model in brackets is not free."""
    places, taken = [], []
    for n, (_, *models) in enumerate(boxes):
        for slot, model in enumerate(models, 1):
            places.append(Place(f"{n}.{slot}", n, model.strip("()")))
            if model.startswith("("):
                taken.append(f"{n}.{slot}")
    free = Inventory({n: box[0] for n, box in enumerate(boxes)}, places, {HOST: ports, 0x1FF: 999})
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
