"""dxpu_manager.requests: a queue, leases, reservations and replacements, with managers that die."""

import asyncio

import pytest

from dxpu_manager import Conflict, Impossible, Kind, NotFound, Phase, State, Where, Wish
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, Died, System
from tests.support.pool_desk import H0, H1, LIMITS, A, B, at_rest, cards_of, desk, settled
from tests.support.simulated_time import run

C = "00000201.1"


def scene(tmp_path, does):
    """Two hosts; a box with two GPUs, and one with one."""
    at_rest(System(2, ((Card(), Card()), (Card(),))), tmp_path / "pool.db", does)


def test_who_waits_gets_what_a_lease_gives_back(tmp_path):
    """Nobody does anything; the second lease is renewed, so the third waits longer."""
    async def does(requests, system):
        first = requests.ask(Wish(H0, 3), lease=20)
        second = requests.ask(Wish(H1, 2), lease=10)
        third = requests.ask(Wish(H0, 2))
        await asyncio.sleep(3)
        assert cards_of(system, system.hosts[0]) == {A, B, C}
        assert requests.pool.request(first.number).phase is Phase.HOLDING
        assert requests.explain(second.number) == (
            "2 GPUs: there are 0 free GPUs; could start in 17 s, when leases end")
        assert requests.explain(third.number) == (
            "2 GPUs: host 00000100 has 1 free port, 1 before it; could start in 17 s, when leases "
            "end")
        await asyncio.sleep(20)
        assert requests.pool.request(first.number).phase is Phase.ENDED
        assert cards_of(system, system.hosts[1]) == {A, B}
        requests.renew(second.number, 30)
        await asyncio.sleep(20)
        assert requests.pool.request(third.number).phase is Phase.WAITING
        await asyncio.sleep(20)
        assert not cards_of(system, system.hosts[1])
        assert len(cards_of(system, system.hosts[0])) == 2
        requests.give_back(third.number)
        await asyncio.sleep(3)
        assert requests.pool.request(third.number).phase is Phase.ENDED
        assert {requests.pool.gpu(name).state for name in (A, B, C)} == {State.FREE}

    scene(tmp_path, does)


def test_a_host_that_keeps_what_it_has_lost_is_forced(tmp_path):
    async def does(requests, system):
        system.hosts[0].consents = False
        requests.ask(Wish(H0, 1), lease=5)
        await asyncio.sleep(12)
        assert not cards_of(system, system.hosts[0])
        assert requests.pool.request(1).phase is Phase.ENDED

    scene(tmp_path, does)


def test_a_reservation(tmp_path):
    """GPUs are kept, and attached at the host's word; one that is pulled is given up."""
    async def does(requests, system):
        pool = requests.pool
        kept = requests.ask(Wish(H0, 2, where=Where.BOX), keeps=True)
        await asyncio.sleep(1)
        assert pool.request(kept.number).phase is Phase.RESERVED
        assert {pool.gpu(name).state for name in (A, B)} == {State.RESERVED}
        assert not cards_of(system, system.hosts[0])
        with pytest.raises(Conflict, match=f"^GPU {A} is kept for request 1$"):
            requests.manager.attach(H1, [A])
        requests.take_up(kept.number)
        await asyncio.sleep(3)
        assert cards_of(system, system.hosts[0]) == {A, B}
        with pytest.raises(Conflict, match="^request 1 is holding, not reserved$"):
            requests.take_up(kept.number)
        requests.give_back(kept.number)
        await asyncio.sleep(3)
        again = requests.ask(Wish(H1, 3), keeps=True, lease=60)
        await asyncio.sleep(1)
        card = system.boxes[1].cards.pop(1)
        await asyncio.sleep(7)
        assert pool.request(again.number).phase is Phase.WAITING
        assert {pool.gpu(name).state for name in (A, B)} == {State.FREE}
        system.boxes[1].plug(1, card)
        await asyncio.sleep(7)
        assert pool.request(again.number).phase is Phase.RESERVED
        await asyncio.sleep(60)
        assert pool.request(again.number).phase is Phase.ENDED
        assert {pool.gpu(name).state for name in (A, B, C)} == {State.FREE}

    scene(tmp_path, does)


def test_a_broken_gpu_is_replaced_by_a_spare(tmp_path):
    async def does(requests, system):
        pool, manager = requests.pool, requests.manager
        manager.describe(0x200, kind=Kind.JOINED, models={1: "V100", 2: "V100"})
        manager.describe(0x201, models={1: "V100"})
        manager.spare(C)
        request = requests.ask(Wish(H0, 2, "V100"))
        await asyncio.sleep(2)
        assert cards_of(system, system.hosts[0]) == {A, B}
        with pytest.raises(Conflict):
            manager.admit(C)
        system.boxes[0].cards[2].works = False
        system.fabric.settle()
        await asyncio.sleep(20)
        assert pool.gpu(B).state is State.FAILED
        assert cards_of(system, system.hosts[0]) == {A, C}
        assert pool.request(request.number).gpus == (A, C)
        assert pool.request(request.number).phase is Phase.HOLDING

    scene(tmp_path, does)


def test_two_gpus_that_fail_at_once_are_both_replaced(tmp_path):
    system = System(1, ((Card(), Card(), Card(), Card()),))
    bench = Bench(system, tmp_path / "pool.db", limits=LIMITS)

    async def whole():
        async with desk(bench) as requests:
            request = requests.ask(Wish(H0, 2))
            await asyncio.sleep(2)
            assert cards_of(system, system.hosts[0]) == {A, B}
            requests.manager.detach([A, B], force=True, broken="smoke")
            await asyncio.sleep(5)
            assert cards_of(system, system.hosts[0]) == {"00000200.3", "00000200.4"}
            held = requests.pool.request(request.number)
            assert (held.phase, held.gpus) == (Phase.HOLDING, ("00000200.3", "00000200.4"))
            await settled(system, requests.pool)

    run(whole())


@pytest.mark.parametrize("force", [False, True])
def test_what_somebody_detaches_is_not_replaced(tmp_path, force):
    """A request is for what is left, and ends with the last GPU."""
    async def does(requests, system):
        pool, manager = requests.pool, requests.manager
        request = requests.ask(Wish(H0, 2))
        await asyncio.sleep(2)
        await manager.wait(manager.detach([A], force=force).number)
        await asyncio.sleep(3)
        assert cards_of(system, system.hosts[0]) == {B}
        held = pool.request(request.number)
        assert (held.phase, held.gpus, held.wish.count) == (Phase.HOLDING, (B,), 1)
        await manager.wait(manager.detach([B], force=force).number)
        await asyncio.sleep(3)
        assert cards_of(system, system.hosts[0]) == set()
        assert pool.request(request.number).phase is Phase.ENDED
        assert pool.gpu(B).state is State.FREE

    scene(tmp_path, does)


def test_several_of_a_request_are_detached_at_once(tmp_path):
    async def does(requests, system):
        manager = requests.manager
        request = requests.ask(Wish(H0, 3))
        await asyncio.sleep(2)
        await manager.wait(manager.detach([A, B], force=True).number)
        await asyncio.sleep(3)
        held = requests.pool.request(request.number)
        assert (held.gpus, held.wish.count) == ((C,), 1)
        assert cards_of(system, system.hosts[0]) == {C}

    scene(tmp_path, does)


def test_what_is_detached_from_a_closed_box_is_replaced(tmp_path):
    async def does(requests, system):
        manager = requests.manager
        request = requests.ask(Wish(H0, 1))
        await asyncio.sleep(2)
        assert cards_of(system, system.hosts[0]) == {C}
        manager.close(0x201)
        await manager.wait(manager.detach([C]).number)
        await asyncio.sleep(3)
        assert requests.pool.request(request.number).gpus == (A,)
        assert cards_of(system, system.hosts[0]) == {A}

    scene(tmp_path, does)


def test_what_could_not_start_has_its_turn_again(tmp_path):
    """Others go on meanwhile."""
    async def does(requests, system):
        system.fabric.cut.add(frozenset((system.hosts[0].mac, system.boxes[1].mac)))
        first = requests.ask(Wish(H0, 3))
        await asyncio.sleep(6)
        held = requests.pool.request(first.number)
        assert (held.phase, held.said) == (
            Phase.WAITING, f"GPU {C}: host 00000100 and box 00000201 have no session")
        second = requests.ask(Wish(H1, 1), lease=5)
        await asyncio.sleep(3)
        assert requests.pool.request(second.number).phase is Phase.HOLDING
        system.fabric.cut.clear()
        await asyncio.sleep(40)
        assert cards_of(system, system.hosts[0]) == {A, B, C}

    scene(tmp_path, does)


def test_wishes_that_cannot_be(tmp_path):
    async def does(requests, system):
        for wish, error, says in (
                (lambda: requests.ask(Wish(0x999)), NotFound, "there is no node 00000999"),
                (lambda: requests.ask(Wish(0x200)), Impossible,
                 "00000200 is a box; a host gets GPUs"),
                (lambda: requests.ask(Wish(H0, 5)), Impossible,
                 "host 00000100 has 4 ports, and 5 are needed"),
                (lambda: requests.ask(Wish(H0), lease=0), Impossible,
                 "a lease is for a time above 0 s, not 0"),
                (lambda: requests.give_back(1), NotFound, "there is no request 1"),
                (lambda: requests.explain(1), NotFound, "there is no request 1"),
                (lambda: requests.manager.describe(H0), Impossible,
                 "00000100 is a host; boxes have kinds and GPUs")):
            with pytest.raises(error) as raised:
                wish()
            assert str(raised.value) == says
        requests.ask(Wish(H0, 4))
        assert requests.explain(1) == (
            "4 GPUs: never; with nobody else in the pool there are 3 free GPUs")
        with pytest.raises(Conflict, match="^request 1 is waiting, not holding or reserved or "):
            requests.renew(1, 5)
        requests.give_back(1)
        with pytest.raises(Conflict, match="^request 1 is ended, not waiting$"):
            requests.explain(1)

    scene(tmp_path, does)


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.long)])
def test_the_manager_is_killed_at_any_moment(tmp_path, step):
    """Between two leases, wherever: the next manager brings all requests to their ends."""
    def killed(name, acts):
        system = System(2, ((Card(), Card()), (Card(),)))
        bench = Bench(system, tmp_path / name, limits=LIMITS)

        async def first():
            async with desk(bench) as requests:
                before = bench.acts
                bench.kill_after(acts)
                requests.ask(Wish(H0, 2), lease=6)
                requests.ask(Wish(H1, 2), lease=6)
                await requests.pool.durable()
                await asyncio.sleep(9)
                bench.kill_after(None)
                return bench.acts - before

        async def second():
            bench.kill_after(None)
            async with desk(bench) as requests:
                if f"request/{1}" not in requests.pool.records:
                    return
                await asyncio.sleep(25)
                for number in (1, 2):
                    if f"request/{number}" in requests.pool.records:
                        assert requests.pool.request(number).phase is Phase.ENDED
                await requests.pool.durable()
                await settled(system, requests.pool)
                assert not bench.wrong

        if acts is None:
            return run(first())
        with pytest.raises(Died):
            run(first())
        return run(second())

    for n in range(0, killed("all.db", None), step):
        killed(f"{n}.db", n)
