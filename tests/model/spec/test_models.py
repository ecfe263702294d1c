"""The models of the fabric's protocol: what must hold holds, what must break is found broken."""

import re

import pytest

from dxpu_cli.pages import fabric_spec as page
from dxpu_model.spec import catalogue
from dxpu_model.spec.arq import Arq
from dxpu_model.spec.bindings import Bindings
from dxpu_model.spec.credits import Credits, RelativeCredits
from dxpu_model.spec.keyed import Keyed
from dxpu_model.spec.management import Management
from dxpu_model.spec.order import Egress
from dxpu_model.spec.queues import Queues
from dxpu_model.spec.quiet import Quiet
from dxpu_model.spec.search import can_reach, search
from dxpu_model.spec.session import BOX, HOST, Sessions


def names(size):
    return [pytest.param(case, id=f"{case.model}: {case.name}") for case in catalogue.cases(size)]


def check(case, *, size):
    result = search(case.make())
    on_page = page.PAGE.read_text()
    print(f"{result.states} states, depth {result.depth}")
    if case.breaks is None:
        assert result.complete
        assert result.fault is None, "\n".join((result.fault, *result.trace))
        part = re.search(f"<!-- generated: {size} -->.*?<!-- end -->", on_page, re.S)[0]
        assert page.table([(case, result)]).splitlines()[-1] in part.splitlines()
    else:
        assert result.fault is not None and case.breaks in result.fault
        assert len(result.trace) == result.depth
        if size == "quick":
            assert page.trace(case, result) in on_page


@pytest.mark.parametrize("case", names("quick"))
def test_quick(case):
    check(case, size="quick")


@pytest.mark.long
@pytest.mark.parametrize("case", names("full"))
def test_full(case):
    check(case, size="full")


def test_the_page_has_no_other_figures():
    text = page.PAGE.read_text()
    for size in catalogue.SIZES:
        part = re.search(f"<!-- generated: {size} -->.*?<!-- end -->", text, re.S)[0]
        rows = re.findall(r"^\| (\w+) \| (.*?) \| [\d,]+ \| \d+ \|$", part, re.M)
        assert rows == [(c.model, c.name) for c in catalogue.cases(size) if c.breaks is None]
    names = re.findall(r"^\*\*(.*?)\*\*: .*\.$", text, re.M)
    assert names == [c.name for c in catalogue.cases() if c.breaks is not None]


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


def test_a_keyed_session_takes_the_place_of_an_old_one_before_strangers():
    """After resets of both ends, and while the box still has the session of before."""
    for stranger in (None, "blind"):
        model = Keyed(stranger=stranger, tlps=(2, 1), resets=(1, 1), offers=3)
        assert can_reach(model, model.initial(), lambda s: (
            s.resets == (1, 1) and s.got == ((0,), (0, 1)) and accepted(s)
            and s.host[0].acked == 1))
        assert can_reach(model, model.initial(), lambda s: (
            s.resets == (1, 0) and accepted(s) and s.box[0]
            and s.candidate[0] == s.host[0].opening != s.box[0].opening))


def test_a_sniffer_delays_and_ends_renew_their_key():
    model = Keyed(stranger="sniffer", resets=(1, 0), renewed=True)
    assert can_reach(model, model.initial(), lambda s: (  # a candidate of the stranger's HELLO
        s.candidate[0] and s.candidate[0].parameters and accepted(s) and s.box[0]))
    assert can_reach(model, model.initial(), lambda s: (
        s.keys == ((2, None), (2, None)) and s.box[0].opening.key == 2 and accepted(s)))


def test_a_manager_takes_over_and_events_follow():
    """Two managers act in turn, the one with the higher epoch at last; after a reset of the node
    either may."""
    model = Management(numbers=(0, 1), events=1, restarts=0)
    assert can_reach(model, model.initial(), lambda s: (
        [o.manager for o in s.acted] == [0, 1] and s.epoch == 2 and s.writer == 1
        and s.taken == ((0, 0), (0, 1)) and s.events == (1, 1)))
    assert can_reach(model, model.initial(), lambda s: (
        [o.manager for o in s.acted] == [1, 0] and s.resets == 1 and s.epoch == 1))


def test_a_manager_that_starts_again_replaces_its_association_before_a_sniffer():
    model = Management(stranger="sniffer", resets=0)
    assert can_reach(model, model.initial(), lambda s: (
        len(s.acted) == 2 and s.restarts == 1 and s.open[0].counter == 1
        and s.managers[0] and s.managers[0].key == s.open[0].key))


def accepted(state):
    """Whether the host has a session, confirmed or not."""
    return hasattr(state.host[0], "opening")


@pytest.mark.parametrize("model,goal", [
    (Quiet(lifetime=3, give_up=2, quiet=8), lambda s: s.opened),
    (Arq(selective=True, window=3, life=4, modulus=7), lambda s: s.stored == {2, 1} == s.named),
    (Arq(selective=False, window=3, life=4, modulus=5), lambda s: s.sent == s.taken == 3),
    (Credits(room=2, life=2, modulus=5), lambda s: s.limit < 0),  # a limit that has shrunk
    (Credits(room=2, life=2, modulus=5), lambda s: s.stored == 2),
    (RelativeCredits(room=2, harm="none"), lambda s: s.wire == 2),
    (Queues(), lambda s: s.transmit == ("NC", "NC") and s.receive == ("N", "N")),
    (Egress(room=2), lambda s: [kind for kind, _ in s.waiting] == list("NNCPPC")),
    (Bindings(owners="AA"), lambda s: s.told_box == s.told_host == (2, 0) and s.queue == (2,)),
    (Bindings(owners="AB"), lambda s: s.told_host == (1, 2) and ("TLP", 1) in s.up[0]
     and ("TLP", 2) in s.up[1]),
], ids=lambda x: type(x).__name__)
def test_what_should_happen_can(model, goal):
    assert can_reach(model, model.initial(), goal)


@pytest.mark.parametrize("selective,least", [(False, 1), (True, 3)])
@pytest.mark.parametrize("life", [3, 4, 5])
def test_window_against_modulus(selective, least, life):
    """Go-back-N needs a modulus above the lifetime; selective repeat one window on top of it."""
    for modulus in range(life - 1, life + 5):
        result = search(Arq(selective=selective, window=3, life=life, modulus=modulus))
        assert result.holds == (modulus >= life + least), modulus


@pytest.mark.parametrize("lifetime,give_up", [(3, 2), (5, 2), (4, 4)])
def test_quiet_time_has_to_be_two_lifetimes_and_the_time_to_give_up(lifetime, give_up):
    """To the tick: both frames may still be sent in the tick in which the wait begins."""
    for quiet in range(2 * (lifetime + give_up)):
        result = search(Quiet(lifetime=lifetime, give_up=give_up, quiet=quiet))
        assert result.holds == (quiet > 2 * lifetime + give_up - 2), quiet


class Deaf(Sessions):
    """A box that hears no HELLO while it has a session."""

    def _take_hello(self, state, nonce, born):
        return state if state.ends[BOX] else super()._take_hello(state, nonce, born)


class Forgetful(Sessions):
    """A box whose answer gets lost once is asked again, and says nothing."""

    def _take_hello(self, state, nonce, born):
        return state if state.candidate else super()._take_hello(state, nonce, born)


class Silent(Keyed):
    """A box that answers a HELLO_DONE once only."""

    def _take_done(self, state, claimed, proof):
        opened = state.box[0] and state.box[0].opening
        return state if opened == claimed else super()._take_done(state, claimed, proof)


@pytest.mark.parametrize("model,fault", [
    (Deaf(tlps=(1, 0)), "no way back to an open session"),
    (Forgetful(tlps=(1, 0)), "no way back to an open session"),
    (Silent(), "no way back to an open session"),
], ids=["deaf", "forgetful", "silent"])
def test_a_session_that_cannot_be_opened_again_is_found(model, fault):
    assert search(model).fault == fault


@pytest.mark.parametrize("make,message", [
    (lambda: Sessions("magic"), "scheme must be None or one of no tag, .*, not 'magic'"),
    (lambda: Keyed("x"), "flaw must be None or one of counter nonce, .*, not 'x'"),
    (lambda: Keyed(stranger="x"), "stranger must be None, blind or sniffer, not 'x'"),
    (lambda: Keyed(stranger="sniffer", tlps=(1, 0)),
     "a sniffer can inject TLPs, so there must be none"),
    (lambda: Management("x"), "flaw must be None or one of one nonce for all, .*, not 'x'"),
    (lambda: Management(stranger="x"), "stranger must be None, blind or sniffer, not 'x'"),
    (lambda: Quiet(lifetime=1, give_up=1, quiet=1, flaw="x"),
     "flaw must be None or one of idle hosts wait, not 'x'"),
    (lambda: Arq(selective=True, window=3, life=2, modulus=9),
     r"window must be from 1 to life \(2\), not 3"),
    (lambda: Arq(selective=True, window=2, life=2, modulus=9, flaw="x"),
     "flaw must be None or one of ACK before commit, .*, not 'x'"),
    (lambda: Credits(room=1, life=1, modulus=3, flaw="x"),
     "flaw must be None or one of never refreshed, unsigned, not 'x'"),
    (lambda: RelativeCredits(room=1, harm="x"), "harm must be none, loss or double, not 'x'"),
    (lambda: Egress(room=1, flaw="x"), "flaw must be None or one of one queue, .*, not 'x'"),
    (lambda: Bindings(owners="AC"), "owners must be a string of A and B, not 'AC'"),
    (lambda: Bindings(owners="A", flaw="x"),
     "flaw must be None or one of no generation, .*, not 'x'"),
])
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
