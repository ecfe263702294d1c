"""The models of the fabric's protocol: what must hold holds, what must break is found broken."""

import pytest

from dxpu_sim.spec import catalogue
from dxpu_sim.spec.search import can_reach, search
from dxpu_sim.spec.session import BOX, HOST, Sessions


def names(size):
    return [pytest.param(case, id=f"{case.model}: {case.name}") for case in catalogue.cases(size)]


def check(case):
    result = search(case.make())
    print(f"{result.states} states, depth {result.depth}")
    if case.breaks is None:
        assert result.complete
        assert result.fault is None, "\n".join((result.fault, *result.trace))
    else:
        assert result.fault is not None and case.breaks in result.fault
        assert len(result.trace) == result.depth


@pytest.mark.parametrize("case", names("quick"))
def test_quick(case):
    check(case)


@pytest.mark.long
@pytest.mark.parametrize("case", names("full"))
def test_full(case):
    check(case)


def test_every_model_holds_as_designed_and_has_a_way_to_break():
    for model in catalogue.MODELS:
        mine = [case for case in catalogue.cases() if case.model == model]
        assert any(case.breaks is None for case in mine)
        assert any(case.breaks for case in mine)
        assert len({case.name for case in mine}) == len(mine)


def test_sizes():
    with pytest.raises(ValueError, match=r"^size must be one of quick, full, not 'huge'$"):
        catalogue.cases("huge")


# A model in which nothing happens holds, too. So: what should happen can.

def test_sessions_go_on_after_resets_of_both_ends():
    model = Sessions(tlps=(2, 1), offers=3)
    assert can_reach(model, model.initial(), lambda s: (
        s.resets == (1, 1) and s.got == ((0,), (0, 1)) and s.ends[HOST].acked == 1
        and s.ends[BOX].acked == 1))


def test_the_box_keeps_its_session_while_it_has_a_candidate():
    model = Sessions(tlps=(2, 0), offers=2)
    assert can_reach(model, model.initial(), lambda s: (
        s.candidate and s.ends[HOST] and s.ends[BOX] and s.ends[HOST].acked == 2))


def test_sessions_check_the_scheme():
    with pytest.raises(ValueError, match="^scheme must be None or one of no tag, .*, not 'magic'$"):
        Sessions("magic")
