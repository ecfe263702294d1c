"""`dxpu_host`'s credits against the executable specification, and who may pass whom."""

import random
from itertools import product

import pytest

from dxpu.fabric.wire.format import CreditClass
from dxpu_host.credits import GRANTS, Accounts, Grants
from dxpu_host.queues import ClassQueues, class_of, units_of
from dxpu_model.tlp import random_tlp
from dxpu_model.wire import Credit
from dxpu_model.wire_vectors import read
from tests.support.host_bench import CreditsWalk, Differs

P, NP, CPL = CreditClass


def test_credits_are_those_of_the_specification_and_wrap():
    rng, wrapped = random.Random(1), 0
    for _ in range(100):
        walk = CreditsWalk(rng)
        walk.run(150)
        wrapped += walk.sent > 65536
    assert wrapped > 20


class Ignores(Accounts):
    """Mutant: sends whatever there is."""

    def allows(self, cls, units):
        return True


class Unsigned(Accounts):
    """Mutant: a limit below what was used counts as much."""

    def allows(self, cls, units):
        limit, used = self._limits[cls][0], self._used[cls][0]
        return (limit - used) % 65536 > 0


class Forgets(Grants):
    """Mutant: what was dealt with is not granted again."""

    def release(self, cls, units, now):
        pass


@pytest.mark.parametrize("parts", [{"accounts": Ignores}, {"accounts": Unsigned},
                                   {"grants": Forgets}], ids=str)
def test_walks_find(parts):
    rng = random.Random(2)
    with pytest.raises(Differs):
        for _ in range(100):
            CreditsWalk(rng, **parts).run(150)


def entries(generation, header=5, data=100):
    return [Credit(cls, generation & 0xFF, header, data) for cls in CreditClass]


def test_limits_count_from_the_frame_that_acknowledges_the_beginning():
    accounts = Accounts()
    accounts.learn(10, entries(0x107))
    assert not accounts.allows(P, 0)
    accounts.begin(0x107, seq=9)
    accounts.learn(9, entries(0x107))  # of the life before
    assert not accounts.allows(P, 0)
    accounts.learn(10, entries(0x108))  # of another binding
    assert not accounts.allows(P, 0) and accounts.refused == 3
    accounts.learn(10, entries(~0x107))  # no life yet
    assert not accounts.allows(P, 0) and accounts.refused == 3
    accounts.learn(10, entries(0x107)[:1])
    assert accounts.allows(P, 100) and not accounts.allows(P, 101) and not accounts.allows(NP, 0)
    accounts.begin(0x107, seq=20)
    assert not accounts.allows(P, 0)


def test_headers_and_units_both_count():
    accounts = Accounts()
    accounts.begin(1, seq=0)
    accounts.learn(1, entries(1, header=3, data=10))
    accounts.spend(P, 4)
    accounts.spend(P, 4)
    assert accounts.allows(P, 2) and not accounts.allows(P, 3)
    accounts.spend(P, 0)
    assert not accounts.allows(P, 0) and accounts.allows(NP, 10)


def test_grants_are_told_with_frames_and_again():
    grants = Grants(GRANTS, refresh=8.0)
    assert not grants.due(0.0) and grants.extension() is None and grants.deadline() is None
    assert [e.generation for e in grants.entries()] == [0xFF] * 3
    grants.begin(0x203, 1.0)
    assert grants.due(1.0)
    assert [(e.cls, e.generation, e.header_limit, e.data_limit) for e in grants.entries()] == [
        (cls, 3, *GRANTS[cls]) for cls in range(3)]
    assert [grants.extension().cls for _ in range(3)] == [0, 1, 2] and grants.extension() is None
    assert not grants.due(1.9) and grants.due(2.0)  # told once more, as all is new
    grants.told()
    assert not grants.due(3.0) and grants.deadline() == 9.0
    assert grants.take(P, 3)
    grants.release(P, 3, 3.0)
    told = grants.extension()
    assert (told.header_limit, told.data_limit) == (GRANTS[0][0] + 1, GRANTS[0][1] + 3)
    assert not grants.due(3.5) and grants.due(4.0)
    grants.told()
    assert grants.due(9.0)
    grants.end()
    assert grants.extension() is None and [e.header_limit for e in grants.entries()] == [0] * 3


def test_what_was_not_granted_is_noticed():
    grants = Grants([(2, 5)] * 3, refresh=1.0)
    grants.begin(1, 0.0)
    assert grants.take(NP, 5) and not grants.take(NP, 1) and grants.take(NP, 0)
    assert not grants.take(NP, 0)


WRITE = bytes([0x40, 0, 0, 1]) + bytes(4) + bytes(4) + bytes(4)
COMPLETION = bytes([0x0A, 0, 0, 0]) + bytes(8)


def test_classes_and_units():
    assert (class_of(WRITE), units_of(WRITE)) == (P, 1)
    assert (class_of(read(0, 0, 4)), units_of(read(0, 0, 4))) == (NP, 0)
    assert (class_of(COMPLETION), units_of(COMPLETION)) == (CPL, 0)


def leave(order, blocked):
    """Numbers of the TLPs that leave, while some classes have no credits."""
    queues = ClassQueues()
    for tlp in order:
        queues.put(tlp)
    left = []
    while (head := queues.first(lambda cls, units: cls not in blocked)) is not None:
        queues.take(head)
        left.append(head.number)
    return left


def test_nothing_passes_a_posted_tlp_and_what_may_pass_a_blocked_one_does():
    for order in product([WRITE, COMPLETION, read(0, 0, 1)], repeat=4):
        check_order(order)


def check_order(order):
    classes = [class_of(tlp) for tlp in order]
    assert leave(order, ()) == [0, 1, 2, 3]
    posted = [n for n, cls in enumerate(classes) if cls == P]
    before = posted[0] if posted else 4
    assert leave(order, (P,)) == [n for n, cls in enumerate(classes) if n < before]
    for blocked in (NP, CPL):
        assert leave(order, (blocked,)) == [n for n, cls in enumerate(classes) if cls != blocked]


def test_random_tlps_leave_in_the_order_of_their_class():
    rng = random.Random(3)
    queues, went = ClassQueues(), []
    tlps = [random_tlp(rng).pack() for _ in range(200)]
    for n, tlp in enumerate(tlps):
        queues.put(tlp, lambda n=n: went.append(n))
    while len(queues):
        shut = rng.randrange(4)
        head = queues.first(lambda cls, units, shut=shut: cls != shut)
        if head is not None:
            queues.take(head)
    place = {n: when for when, n in enumerate(went)}
    assert sorted(went) == list(range(200))
    for a in range(200):
        for b in range(a + 1, 200):
            if class_of(tlps[a]) in (class_of(tlps[b]), P):
                assert place[a] < place[b]
