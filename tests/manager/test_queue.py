"""dxpu_manager.queue: priorities, leases, and who jumps without delaying anybody."""

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager.allocation import Inventory, Kind, Place, Wish
from dxpu_manager.queue import Running, Waiting, explain, schedule

HOSTS = (1, 2)


def inventory(count):
    """Boxes of two GPUs behind a switch."""
    boxes = range(0, count, 2)
    places = [Place(f"{n}", n & ~1) for n in range(count)]
    return Inventory(dict.fromkeys(boxes, Kind.SWITCH), places, dict.fromkeys(HOSTS, 64))


def waiting(number, count, *, lease=None, priority=0, host=1):
    return Waiting(number, Wish(host, count), float(number), priority, lease)


def numbers(decision):
    return [one.number for one, _ in decision.starts]


def held(free, *what):
    """Leases as count and end, whose GPUs are not free."""
    found, left = [], [str(n) for n in range(len(free.places))]
    for count, until in what:
        gpus, left = tuple(left[:count]), left[count:]
        free.take(2, gpus)
        found.append(Running(2, gpus, until))
    return found


def test_priorities_and_turns():
    free = inventory(4)
    found = schedule(0, [waiting(1, 1), waiting(2, 2, priority=5), waiting(3, 1)], [], free)
    assert numbers(found) == [2, 1, 3] and found.head is None
    assert len({gpu for _, gpus in found.starts for gpu in gpus}) == 4


def test_who_is_short_jumps():
    free = inventory(4)
    running = held(free, (3, 100.0))
    head = waiting(1, 4)
    for lease, jumps in ((100.0, True), (100.1, False), (None, False)):
        found = schedule(0, [head, waiting(2, 1, lease=lease)], running, free)
        assert (numbers(found), found.head, found.by) == ([2] if jumps else [], head, 100.0)


def test_who_takes_what_the_head_does_not_need_jumps():
    free = inventory(6)
    running = held(free, (4, 100.0))
    found = schedule(0, [waiting(1, 4), waiting(2, 1), waiting(3, 1), waiting(4, 1)], running, free)
    # Of six, four are the head's at 100 s, and two are anybody's for ever.
    assert (numbers(found), found.by) == ([2, 3], 100.0)


def test_leases_that_end_together():
    """All of them count for who jumps."""
    free = inventory(6)
    running = held(free, (2, 100.0), (2, 100.0))
    found = schedule(0, [waiting(1, 4), waiting(2, 2)], running, free)
    assert (numbers(found), found.by) == ([2], 100.0)


def test_nobody_waits_for_ever_for_a_lease_that_does_not_end():
    free = inventory(4)
    running = held(free, (2, None))
    found = schedule(0, [waiting(1, 3), waiting(2, 2, lease=5.0)], running, free)
    assert (numbers(found), found.by) == ([2], None)


JOBS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from((1.0, 2.0, 5.0, 20.0)),
                          st.integers(0, 2), st.sampled_from(HOSTS)), min_size=1, max_size=8)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(1, 2), st.sampled_from((1.0, 3.0, 7.0))), max_size=2), JOBS)
def test_the_first_that_waits_starts_when_it_was_told(leases, jobs):
    """Whoever jumps; and all have had their turn in the end, none with another's GPU."""
    free = inventory(4)
    running = held(free, *leases)
    queue = [waiting(n, count, lease=lease, priority=priority, host=host)
             for n, (count, lease, priority, host) in enumerate(jobs)]
    now, promised = 0.0, {}
    while queue or running:
        found = schedule(now, queue, running, free)
        for one, gpus in found.starts:
            free.take(one.wish.host, gpus)
            running.append(Running(one.wish.host, gpus, now + one.lease))
            queue.remove(one)
            assert now <= promised.get(one.number, now)
        if found.head is not None:
            assert found.by is not None
            promised[found.head.number] = min(promised.get(found.head.number, found.by), found.by)
        assert not any(gpu in other.gpus for one in running for other in running
                       if other is not one for gpu in one.gpus)
        if running:
            now = min(one.until for one in running)
            for one in [one for one in running if one.until == now]:
                running.remove(one)
                free.give(one.host, one.gpus)
    assert not queue


def test_explanations():
    free = inventory(4)
    running = held(free, (2, 60.0), (1, None))
    queue = [waiting(1, 3), waiting(2, 2), waiting(3, 5), waiting(4, 1), waiting(5, 4)]
    assert explain(1, 10.0, queue, running, free) == (
        "3 GPUs: there is 1 free GPU; could start in 50 s, when leases end")
    assert explain(2, 10.0, queue, running, free) == (
        "2 GPUs: there is 1 free GPU, 1 before it; could start in 50 s, when leases end")
    assert explain(3, 10.0, queue, running, free) == (
        "5 GPUs: never; with nobody else in the pool there are 4 free GPUs")
    assert explain(4, 10.0, queue, running, free) == (
        "1 GPU: it would delay a wish before it, 3 before it; could start in 50 s, when leases end")
    assert explain(5, 10.0, queue, running, free) == (
        "4 GPUs: there is 1 free GPU, 4 before it; waits for somebody without a lease")
    assert explain(2, 10.0, queue[1:2] + [waiting(9, 1)], [], inventory(4)) == "2 GPUs: starts now"
    with pytest.raises(KeyError):
        explain(7, 0.0, queue, running, free)
