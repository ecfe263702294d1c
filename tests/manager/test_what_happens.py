"""dxpu_manager: what an operator sees when something goes wrong at a node, a GPU or a wish."""

import asyncio
import re
from dataclasses import replace

import pytest

from dxpu_manage import NoAnswer
from dxpu_manager import (
    Cause, Conflict, Deposed, Impossible, Job, Limits, NotFound, PoolError, Progress, State, Task,
)
from dxpu_manager.backups import backup
from dxpu_manager.looks import STRANGERS
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, System
from tests.support.pool_desk import H0, H1, A, B, cards_of, settled
from tests.support.shelves import FileShelf
from tests.support.simulated_time import run

LIMITS = Limits(attach=4.0, consent=3.0, patience=2.0, look=5.0, admits=True)


def scene(shelf, does, *, wipes=True, rest=True, attached=(A,)):
    """Let ``does`` go on with a manager, a system, and GPUs that host 0 has; then all must be at
    rest."""
    system = System(2, ((Card(wipes=wipes), Card()),))
    system.boxes[0].wipe(1)
    bench = Bench(system, shelf, limits=LIMITS)

    async def whole():
        async with bench.manager(watches=True) as manager:
            await asyncio.sleep(2)
            if attached:
                assert (await manager.wait(manager.attach(H0, attached).number)).progress is \
                    Progress.DONE
            await does(manager, system)
            if rest:
                await manager.pool.durable()
                await settled(system, manager.pool)
            assert not bench.wrong

    run(whole())


def test_a_host_that_was_reset_gets_its_gpus_back(shelf):
    """Nobody does anything; the log says so."""
    async def does(manager, system):
        said = []
        manager.pool.listeners.append(lambda event: said.append(event.said))
        system.hosts[0].reset()
        assert not cards_of(system, system.hosts[0])
        await asyncio.sleep(4)
        assert cards_of(system, system.hosts[0]) == {A}
        assert f"GPU {A}: attached -> attaching, bound again, as a row was lost" in said
        assert f"GPU {A}: attaching -> attached, the host has it" in said

    scene(shelf, does)


@pytest.mark.parametrize("what", ["box", "session"])
def test_a_card_that_was_lost_comes_back_under_another_generation(shelf, what):
    async def does(manager, system):
        before = manager.pool.gpu(A).generation
        if what == "box":
            system.boxes[0].reset()
        else:
            system.fabric.cut.add(frozenset((system.hosts[0].mac, system.boxes[0].mac)))
            system.fabric.settle()
            assert not cards_of(system, system.hosts[0])
            # For as long as it takes: the GPU stays the host's.
            await asyncio.sleep(60)
            assert manager.pool.gpu(A).binding.host == H0
            system.fabric.cut.clear()
            system.fabric.settle()
        await asyncio.sleep(8)
        assert cards_of(system, system.hosts[0]) == {A}
        assert manager.pool.gpu(A).generation > before

    scene(shelf, does)


def test_a_gpu_whose_link_does_not_come_up(shelf):
    """The task ends with nothing attached; the GPU is failed, the others are free."""
    async def does(manager, system):
        system.boxes[0].cards[2].works = False
        task = await manager.wait(manager.attach(H0, [A, B]).number)
        assert (task.progress, task.said) == (
            Progress.FAILED, f"GPU {B}: its link does not come up")
        assert manager.pool.gpu(A).state is State.FREE
        assert (manager.pool.gpu(B).state, manager.pool.gpu(B).broken) == (State.FAILED, task.said)
        assert not cards_of(system, system.hosts[0])
        with pytest.raises(Conflict, match=f"^GPU {B} is failed, not free or reserved or spare$"):
            manager.attach(H0, [A, B])
        assert manager.pool.gpu(A).state is State.FREE

    scene(shelf, does, attached=())


def test_an_operating_system_that_does_not_let_go(shelf):
    async def does(manager, system):
        system.hosts[0].consents = False
        task = await manager.wait(manager.detach([A]).number)
        assert (task.progress, task.said) == (
            Progress.FAILED, "the operating system of host 00000100 has not let go of GPU "
            f"{A}: something uses it, or no driver listens")
        assert manager.pool.gpu(A).state is State.ATTACHED
        assert cards_of(system, system.hosts[0]) == {A}
        task = await manager.wait(manager.detach([A], force=True).number)
        assert (task.progress, manager.pool.gpu(A).state) == (Progress.DONE, State.FREE)

    scene(shelf, does)


def test_a_host_that_does_not_answer_keeps_no_gpu(shelf):
    """By force the GPU is another host's; when the first one answers again its row goes."""
    async def does(manager, system):
        manager.network.cut.add(system.hosts[0])
        task = await manager.wait(manager.detach([A]).number)
        assert task.said == ("host 00000100 does not answer; by force its GPUs can be taken "
                             "nevertheless")
        task = await manager.wait(manager.detach([A], force=True).number)
        assert (task.progress, manager.pool.gpu(A).state) == (Progress.DONE, State.FREE)
        assert not cards_of(system, system.hosts[0])
        await manager.wait(manager.attach(H1, [A]).number)
        assert cards_of(system, system.hosts[1]) == {A}
        assert system.hosts[0].rows[0].used
        await manager.look(H0)
        assert "does not answer" in manager.down[H0]
        manager.network.cut.clear()
        await manager.look(H0)
        assert not manager.down and not system.hosts[0].rows[0].used
        assert cards_of(system, system.hosts[1]) == {A}

    scene(shelf, does)


def test_a_box_that_does_not_answer_is_waited_for(shelf):
    """What it has is not free before it says so."""
    async def does(manager, system):
        manager.network.cut.add(system.boxes[0])
        number = manager.detach([A], force=True).number
        await asyncio.sleep(30)
        assert manager.pool.gpu(A).state is State.DRAINING
        manager.network.cut.clear()
        assert (await manager.wait(number)).progress is Progress.DONE
        assert manager.pool.gpu(A).state is State.FREE

    scene(shelf, does)


def test_what_somebody_else_has_bound_is_released(shelf):
    async def does(manager, system):
        nodes, pool = manager.nodes, manager.pool
        host, box = pool.node(H1), pool.node(0x200)
        binding = replace(pool.gpu(A).binding, host=H1, port=3, generation=77)
        await nodes.bind(box, 1, host, pool.gpu(B), binding)
        await nodes.bind(host, 3, box, pool.gpu(B), binding)
        await manager.look_at_all()
        assert not system.hosts[1].rows[3].used and not system.boxes[0].rows[1].used
        assert (pool.gpu(B).state, pool.gpu(B).cause) == (State.QUARANTINED, Cause.DRIFT)
        # Nobody admits it without a word.
        await manager.look_at_all()
        assert pool.gpu(B).state is State.QUARANTINED
        manager.admit(B)
        await manager.wait(manager.attach(H1, [B]).number)
        assert cards_of(system, system.hosts[1]) == {B}
        assert pool.gpu(B).generation == 78

    system = System(2, ((Card(), Card()),))
    bench = Bench(system, shelf, limits=LIMITS)

    async def whole():
        async with bench.manager(watches=False) as manager:
            await manager.wait(manager.attach(H0, [A]).number)
            await does(manager, system)
            await manager.pool.durable()
            await settled(system, manager.pool)

    run(whole())


def quiet_scene(shelf, does):
    """A scene in which the manager looks at nodes only when told."""
    system = System(2, ((Card(), Card()),))
    bench = Bench(system, shelf, limits=LIMITS)

    async def whole():
        async with bench.manager() as manager:
            await manager.wait(manager.attach(H0, [A]).number)
            await does(manager, system)
            await manager.pool.durable()
            await settled(system, manager.pool)

    run(whole())


def test_a_box_that_was_reset_is_enough_to_bind_again(shelf):
    """Whatever its hosts say."""
    async def does(manager, system):
        system.boxes[0].reset()
        manager.nodes.forget(0x200)  # as when it announces itself
        await manager.look(0x200)
        task = manager.pool.task(2)
        assert (task.job, task.gpus) == (Job.REBIND, (A,))
        assert (await manager.wait(2)).progress is Progress.DONE

    quiet_scene(shelf, does)


@pytest.mark.parametrize("node", [H0, 0x200])
def test_one_look_finds_out_that_a_node_was_reset(shelf, node):
    """Although the node was asked under its number, which is gone."""
    async def does(manager, system):
        (system.hosts[0] if node == H0 else system.boxes[0]).reset()
        await manager.look(node)
        assert not manager.down
        assert (await manager.wait(2)).job is Job.REBIND
        assert cards_of(system, system.hosts[0]) == {A}
        # One that is not there is not there.
        manager.network.cut.add(system.boxes[0])
        await manager.look(0x200)
        assert "does not answer" in manager.down[0x200]
        manager.network.cut.clear()

    quiet_scene(shelf, does)


def test_a_host_uses_more_boxes_than_it_has_peers(shelf):
    """One after the other; a box whose GPU the host has is not forgotten."""
    system = System(2, ((Card(),), (Card(),), (Card(), Card())), peers=2)
    bench = Bench(system, shelf, limits=LIMITS)
    gpus = "00000200.1", "00000201.1", "00000202.1"

    async def whole():
        async with bench.manager() as manager:
            await manager.wait(manager.attach(H0, gpus[:1]).number)
            for name in (*gpus[1:], *gpus[1:]):
                task = await manager.wait(manager.attach(H0, [name]).number)
                assert task.progress is Progress.DONE, task.said
                assert cards_of(system, system.hosts[0]) == {gpus[0], name}
                await manager.wait(manager.detach([name]).number)
            await manager.wait(manager.attach(H0, gpus[1:2]).number)
            task = await manager.wait(manager.attach(H0, gpus[2:]).number)
            assert task.said.endswith("all 2 peers are taken: first remove one")
            assert cards_of(system, system.hosts[0]) == {*gpus[:2]}
            await manager.wait(manager.attach(H1, ["00000202.2"]).number)
            assert cards_of(system, system.hosts[1]) == {"00000202.2"}
            await settled(system, manager.pool)
            assert not bench.wrong

    run(whole())


def test_a_node_that_is_slow_is_met_and_looked_at_once(shelf, monkeypatch):
    """However often it announces itself meanwhile, and all nodes are due."""
    system = System(1, ((Card(),),))
    bench = Bench(system, shelf, limits=LIMITS)
    met, looks = [], []

    async def whole():
        async with bench.manager(watches=True) as manager:
            nodes = manager.nodes
            reach, rows = nodes.reach, nodes.rows

            async def slowly(node):
                met.append(node.serial)
                await asyncio.sleep(60 if len(met) < 3 else 0)
                return await reach(node)

            async def counted(node):
                looks.append(node.serial)
                return await rows(node)

            monkeypatch.setattr(nodes, "reach", slowly)
            monkeypatch.setattr(nodes, "rows", counted)
            await asyncio.sleep(59)
            assert sorted(met) == [H0, 0x200]
            await asyncio.sleep(4)
            # Some by a look at all nodes, and by a last announcement.
            assert 2 <= len(looks) <= 8
            assert manager.pool.gpu(A).state is State.FREE

    run(whole())


def test_a_gpu_that_changes_during_a_look_is_left_alone(shelf, monkeypatch):
    """What was read before the change says nothing about it."""
    async def does(manager, system):
        nodes, pool = manager.nodes, manager.pool
        dirty, rows = nodes.dirty, nodes.rows

        async def meanwhile(box):
            monkeypatch.undo()
            await manager.wait(manager.detach([A], force=True).number)
            return await dirty(box)

        monkeypatch.setattr(nodes, "dirty", meanwhile)
        await manager.look(0x200)
        assert (pool.gpu(A).state, pool.gpu(A).cause) == (State.FREE, Cause.CLEAN)
        await manager.wait(manager.attach(H0, [A]).number)

        async def before(node):
            monkeypatch.undo()
            found = await rows(node)
            await manager.wait(manager.detach([A], force=True).number)
            await manager.wait(manager.attach(H0, [B]).number)
            return found

        monkeypatch.setattr(nodes, "rows", before)
        await manager.look(H0)
        assert {task.job for task in pool.all(Task)} == {Job.ATTACH, Job.DETACH}
        assert cards_of(system, system.hosts[0]) == {B}

    quiet_scene(shelf, does)


def test_a_gpu_that_keeps_its_memory_is_free_when_it_was_wiped(shelf):
    async def does(manager, system):
        await manager.wait(manager.detach([A]).number)
        gpu = manager.pool.gpu(A)
        assert (gpu.state, gpu.cause) == (State.QUARANTINED, Cause.DIRTY)
        with pytest.raises(Conflict):
            manager.attach(H1, [A])
        await manager.look(0x200)
        assert manager.pool.gpu(A).state is State.QUARANTINED
        system.boxes[0].wipe(1)
        await manager.look(0x200)
        assert manager.pool.gpu(A).state is State.FREE
        # One that nobody had is dirty after a reset of its box, as nobody knows any more.
        system.boxes[0].reset()
        await asyncio.sleep(3)
        assert manager.pool.gpu(A).state is State.QUARANTINED
        system.boxes[0].wipe(1)

    scene(shelf, does, wipes=False)


def test_cards_are_pulled_and_put_in(shelf):
    async def does(manager, system):
        box = system.boxes[0]
        card = box.cards.pop(2)
        system.fabric.settle()
        await manager.look(0x200)
        assert (manager.pool.gpu(B).state, manager.pool.gpu(B).cause) == (
            State.ABSENT, Cause.PULLED)
        with pytest.raises(Conflict, match=f"^GPU {B} is absent"):
            manager.attach(H0, [B])
        box.plug(2, card)
        await manager.look(0x200)
        assert manager.pool.gpu(B).state is State.FREE
        # One that a host has: it failed, and then it is seen that the slot is empty.
        said = []
        manager.pool.listeners.append(lambda event: said.append(event.said))
        del box.cards[1]
        system.fabric.settle()
        await asyncio.sleep(8)
        gpu = manager.pool.gpu(A)
        assert (gpu.state, gpu.broken) == (State.ABSENT, f"GPU {A}: its link does not come up")
        failed = said.index(f"GPU {A}: draining -> failed, broken")
        assert f"GPU {A}: failed -> absent, gone from its slot" in said[failed:]

    scene(shelf, does)


def test_a_task_is_cancelled(shelf):
    async def does(manager, system):
        manager.network.cut.add(system.boxes[0])
        task = manager.attach(H1, [A])
        await asyncio.sleep(0.2)
        manager.cancel(task.number)
        await asyncio.sleep(1)
        with pytest.raises(Conflict, match=f"^task {task.number} is rolling back$"):
            manager.cancel(task.number)
        manager.network.cut.clear()
        task = await manager.wait(task.number)
        assert (task.progress, task.said) == (Progress.FAILED, "cancelled")
        assert manager.pool.gpu(A).state is State.FREE
        with pytest.raises(Conflict, match=f"^task {task.number} is failed$"):
            manager.cancel(task.number)

    scene(shelf, does, attached=())


def test_nodes_are_closed_and_gpus_retired(shelf):
    async def does(manager, system):
        pool = manager.pool
        manager.close(H1)
        with pytest.raises(Conflict, match="^host 00000101 is closed: open it first$"):
            manager.attach(H1, [B])
        manager.close(H1, is_closed=False)
        manager.close(0x200)
        with pytest.raises(Conflict, match="^box 00000200 is closed: open it first$"):
            manager.attach(H1, [B])
        # What is in use stays.
        assert cards_of(system, system.hosts[0]) == {A}
        manager.close(0x200, is_closed=False)
        task = await manager.wait(manager.give_up(A, "ECC errors").number)
        assert task.progress is Progress.DONE
        assert (pool.gpu(A).state, pool.gpu(A).broken) == (State.FAILED, "ECC errors")
        assert not cards_of(system, system.hosts[0])
        with pytest.raises(Conflict, match=f"^GPU {B} is free, not failed or quarantined$"):
            manager.retire(B)
        del system.boxes[0].cards[1]
        system.fabric.settle()
        manager.retire(A)
        assert (pool.gpu(A).state, pool.gpu(A).cause) == (State.ABSENT, Cause.RETIRED)
        manager.set_aside(B)
        await manager.look(0x200)
        assert pool.gpu(B).state is State.QUARANTINED
        # Another card in the slot is another GPU.
        system.boxes[0].plug(1, Card())
        await manager.look(0x200)
        assert (pool.gpu(A).state, pool.gpu(A).broken) == (State.FREE, "")

    scene(shelf, does)


def test_a_deposed_manager_changes_nothing(tmp_path):
    """Another one with a higher epoch has the nodes; what the first one wants is refused there, and
    it stops."""
    system = System(2, ((Card(), Card()),))
    first = Bench(system, tmp_path / "first.db", limits=LIMITS)
    async def whole():
        async with first.manager() as old:
            await old.wait(old.attach(H0, [A]).number)
            backup(tmp_path / "first.db", tmp_path / "second.db")
            second = Bench(system, tmp_path / "second.db", limits=LIMITS)
            async with second.manager() as new:
                assert new.pool.store.epoch > old.pool.store.epoch
                before = old.attach(H1, [B]).number
                await asyncio.sleep(1)
                assert old.deposed.is_set()
                assert not cards_of(system, system.hosts[1])
                assert not old.pool.task(before).progress.ended
                with pytest.raises(Deposed, match="^another manager has taken over$"):
                    old.attach(H1, [B])
                with pytest.raises(Deposed, match="^another manager has taken over$"):
                    await old.wait(before)
                await new.wait(new.detach([A]).number)
                await new.wait(new.attach(H1, [A, B]).number)
                assert cards_of(system, system.hosts[1]) == {A, B}
                await new.pool.durable()
                await settled(system, new.pool)

    run(whole())


def test_a_store_that_is_lost(tmp_path):
    """A manager stops that may have been deposed, in the middle of its task, and if nothing else
    would tell."""
    class Shelf(FileShelf):
        def open(self, act):
            store = super().open(act)
            store.lost, store.leads = lost.wait, lambda: not lost.is_set()
            return store

    lost, system = asyncio.Event(), System(2, ((Card(), Card()),))
    bench = Bench(system, Shelf(tmp_path / "pool.db"), limits=LIMITS)

    async def whole():
        async with bench.manager() as manager:
            await manager.wait(manager.attach(H0, [A]).number)
            manager.network.cut.add(system.boxes[0])
            task = manager.attach(H1, [B])
            waits = asyncio.create_task(manager.wait(task.number))
            await asyncio.sleep(1)
            before = manager.network.sent
            await asyncio.sleep(1)
            assert manager.network.sent > before and not waits.done()
            lost.set()
            before = manager.network.sent
            await manager.deposed.wait()
            with pytest.raises(Deposed):
                await waits
            with pytest.raises(Deposed):
                manager.detach([A])
            # Nor by somebody who has not heard of it.
            manager.network.cut.clear()
            with pytest.raises(NoAnswer):
                await manager.nodes.release(manager.pool.node(H0), 0)
            assert manager.network.sent == before
            assert cards_of(system, system.hosts[0]) == {A}

    run(whole())


def test_strangers(shelf):
    """Nodes that the manager does not take in, and why."""
    async def does(manager, system):
        box = system.boxes[0]
        impostor = System(0, ((Card(),),), rng=system.rng).boxes[0]
        impostor.mac = b"\x02\x51\0\0\x07\x07"
        impostor.reset()
        lost = System(0, ((Card(),), (Card(),))).boxes[1]
        for node in (impostor, lost):
            manager.network.give(node.model.announcement())
        await asyncio.sleep(1.5)
        assert manager.strangers[impostor.mac] == (
            "02:51:00:00:07:07 says that it is the box 00000200, which is 02:51:00:00:02:00: one "
            "of two nodes with this serial number is wrong")
        assert manager.strangers[lost.mac] == (
            "no key of the box 00000201 at 02:51:00:00:02:01: give its factory record to the "
            "manager")
        # A node with another key than its record says nothing.
        box.key = bytes(16)
        box.reset()
        await asyncio.sleep(3)
        assert re.fullmatch("node 02:51:00:00:02:00 does not answer: is it there, with this key, "
                            "and not asked by another manager of this number\\?",
                            manager.down[0x200])

    scene(shelf, does, attached=(), rest=False)


def test_forged_announcements_fill_nothing(shelf):
    """So many are remembered, and one event says that there are more; the true one is met."""
    async def does(manager, system):
        said = []
        manager.pool.listeners.append(lambda event: said.append((event.key, event.said)))
        lost = System(0, ((Card(),), (Card(),))).boxes[1]
        forged = System(0, ((Card(),),)).boxes[0]
        for n in range(3 * STRANGERS):
            forged.mac = b"\x02\x52\0\0" + n.to_bytes(2, "big")
            forged.serial = 0x7000 + n
            forged.reset()
            manager.network.give(forged.model.announcement())
            if n % 20 == 0:
                await asyncio.sleep(1)
        manager.network.give(lost.model.announcement())
        await asyncio.sleep(1)
        assert len(manager.strangers) == STRANGERS and lost.mac in manager.strangers
        assert manager.dropped == 2 * STRANGERS + 1
        events = [event for event in said if event[0].startswith("stranger/")]
        assert len(events) == STRANGERS + 1
        assert events[0] == ("stranger/025200000000", "no key of the box 00007000 at "
                             "02:52:00:00:00:00: give its factory record to the manager")
        assert events[-1] == ("stranger/many", f"more than {STRANGERS} strangers announce "
                              "themselves: somebody may forge them")
        # Who is silent is none any more, and of others events speak again.
        await asyncio.sleep(20)
        assert not manager.strangers
        manager.network.give(lost.model.announcement())
        await asyncio.sleep(1)
        assert said[-1] == ("stranger/025100000201", manager.strangers[lost.mac])
        assert manager.dropped == 2 * STRANGERS + 1
        assert not [key for key in manager.pool.records if key.startswith("stranger")]

    scene(shelf, does, attached=())


def test_events_say_who_is_silent_and_who_is_back(shelf):
    """Each once, however often a node is looked at."""
    async def does(manager, system):
        said = []
        manager.pool.listeners.append(lambda event: said.append((event.key, event.said)))
        for _ in range(2):
            manager.network.cut.add(system.hosts[1])
            await asyncio.sleep(25)
            assert manager.pool.store.leads() and not manager.deposed.is_set()
            manager.network.cut.clear()
            await asyncio.sleep(15)
        silent = ("reach/00000101", "host 00000101 does not answer: node 02:51:00:00:01:01 does "
                  "not answer: is it there, with this key, and not asked by another manager of "
                  "this number?")
        back = ("reach/00000101", "host 00000101 answers again")
        assert said == [silent, back] * 2
        assert not manager.down and "reach/00000101" not in manager.pool.records

    scene(shelf, does)


def test_wishes_that_cannot_be(shelf):
    async def does(manager, system):
        for wish, error, says in (
                (lambda: manager.attach(0x999, [A]), NotFound, "there is no node 00000999"),
                (lambda: manager.attach(H0, ["x.1"]), NotFound, "there is no GPU x.1"),
                (lambda: manager.attach(0x200, [B]), Impossible,
                 "00000200 is a box; a host gets GPUs"),
                (lambda: manager.attach(H0, []), Impossible,
                 "name one GPU at least, and each once"),
                (lambda: manager.attach(H0, [B, B]), Impossible,
                 "name one GPU at least, and each once"),
                (lambda: manager.attach(H0, [A]), Conflict,
                 f"GPU {A} is attached, not free or reserved or spare"),
                (lambda: manager.attach(H1, ["a", "b", "c", "d", "e"]), Conflict,
                 "host 00000101 has 4 of 4 ports left, and 5 are needed"),
                (lambda: manager.detach([B]), Conflict, f"GPU {B} is free, not attached"),
                (lambda: manager.cancel(9), NotFound, "there is no task 9"),
                (lambda: manager.cancel(1), Conflict, "task 1 is done"),
                (lambda: manager.admit(B), Conflict, f"GPU {B} is free, not quarantined")):
            before = dict(manager.pool.records)
            with pytest.raises(error) as raised:
                wish()
            assert isinstance(raised.value, PoolError) and str(raised.value) == says
            assert manager.pool.records == before
        await manager.wait(manager.attach(H1, [B]).number)
        with pytest.raises(Impossible, match="^these GPUs are of several hosts: "):
            manager.detach([A, B])

    scene(shelf, does)
