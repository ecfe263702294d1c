"""dxpu_manager: a GPU is attached when there is evidence that the host has it, and rolled back with
what is missing if that does not come."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager import Conflict, Impossible, Limits, Progress, State
from dxpu_manager.evidence import NEVER, WORD, Evidence, Sight
from dxpu_manager.records import Binding, Node, Role
from tests.support.pool_bench import Bench, Died, System
from tests.support.pool_desk import H0, H1, A, B, end, settled
from tests.support.simulated_time import run

LIMITS = Limits(attach=4.0, boot=200.0, word=30.0, grace=5.0, patience=2.0, look=5.0, admits=True)
#: The bus behind port 0 of a light host.
BUS = 2


def scene(shelf, does, *, loss=0.0, **software):
    """Let ``does`` go on with a manager, and host 0 and its software; then all must be at rest."""
    system = System()
    host = system.hosts[0]
    for name, value in software.items():
        setattr(host.software, name, value)
    bench = Bench(system, shelf, limits=LIMITS, loss=loss)

    async def whole():
        async with bench.manager(watches=True) as manager:
            await asyncio.sleep(2)
            await does(manager, host)
            await manager.pool.durable()
            await settled(system, manager.pool)
            assert not bench.wrong

    run(whole())


async def attached(manager, *, by=None, gpu=A):
    """The seconds that an attach takes, and the task at its end; ``by`` goes on meanwhile."""
    began = manager.pool.clock()
    number = manager.attach(H0, [gpu]).number
    other = asyncio.ensure_future(by(number)) if by else None
    task = await manager.wait(number)
    if other:
        await other
    return manager.pool.clock() - began, task


def seen(manager, gpu=A):
    return manager.pool.gpu(gpu).binding.seen


def test_a_driver_that_shows_the_card_in_use_needs_no_grace(shelf):
    async def does(manager, host):
        took, task = await attached(manager)
        assert took < 1 and task.progress is Progress.DONE
        assert seen(manager) == ("link", "windows", "in use by the operating system")
        assert task.seen == (f"GPU {A}: link, windows, in use by the operating system",)

    scene(shelf, does)


def test_without_an_indicator_there_is_a_time_of_grace(shelf):
    async def does(manager, host):
        async def by(number):
            await asyncio.sleep(3)
            verdict = manager.verdicts(number)[A]
            assert verdict.seen == ("link", "windows")
            assert verdict.lacks.endswith(" s of grace are left")
            assert manager.pool.gpu(A).state is State.ATTACHING

        took, task = await attached(manager, by=by)
        assert 5 <= took < 6 and task.progress is Progress.DONE
        assert seen(manager) == ("link", "windows", "5 s of grace")
        assert not manager.verdicts(task.number)

    scene(shelf, does, indicates=False)


def test_a_link_that_breaks_begins_the_grace_anew(shelf):
    async def does(manager, host):
        async def by(number):
            await asyncio.sleep(3)
            host.software.leaves_room = False
            await asyncio.sleep(1)
            host.software.leaves_room = True

        took, _ = await attached(manager, by=by)
        assert 9 <= took < 10.5
        # A card that goes long after the deadline of the link has the time of a link to come back.
        manager.has_agent(H0)

        async def breaks(number):
            await asyncio.sleep(10)
            host.fabric.cut.add(pair := frozenset((host.mac, host.fabric.agents[-1].mac)))
            host.fabric.settle()
            await asyncio.sleep(2)
            host.fabric.cut.discard(pair)
            host.fabric.settle()
            await asyncio.sleep(5)
            await manager.confirm(H0, B)

        took, task = await attached(manager, by=breaks, gpu=B)
        assert task.progress is Progress.DONE and 17 <= took < 18, task.said

    scene(shelf, does, indicates=False)


def test_an_indicator_that_was_on_before_says_nothing(shelf):
    """Of a card that has gone a moment ago: there is a time of grace."""
    async def does(manager, host):
        host.software.indicator = lambda is_linked: 1
        took, _ = await attached(manager)
        assert 5 <= took < 6 and seen(manager)[-1] == "5 s of grace"

    scene(shelf, does)


def test_a_host_that_gives_no_window(shelf):
    async def does(manager, host):
        took, task = await attached(manager)
        assert 4 <= took < 5
        assert (task.progress, task.said) == (
            Progress.FAILED, f"GPU {A}: host 00000100 has given port 0 no memory window")
        # It is not the GPU's fault.
        assert manager.pool.gpu(A).state is State.FREE and not host.fabric.cards_of(host)

    scene(shelf, does, leaves_room=False)


def test_windows_that_come_with_the_card(shelf):
    async def does(manager, host):
        async def by(number):
            await asyncio.sleep(2)
            host.software.leaves_room = True

        took, task = await attached(manager, by=by)
        assert 2 <= took < 3 and task.progress is Progress.DONE

    scene(shelf, does, leaves_room=False)


@pytest.mark.parametrize("software", [{"powered": False}, {"enumerates": False}])
def test_a_host_that_has_not_started_finds_the_card_when_it_does(shelf, software):
    """Its own link is down, or up, and no port has a bus: nothing can be known before."""
    async def does(manager, host):
        took, task = await attached(manager)
        assert took < 1 and task.progress is Progress.DONE
        card = "link" if "enumerates" in software else "card"
        assert seen(manager) == (card, "the host has not started")
        # The word of an agent that comes later is noted.
        host.software.powered = host.software.enumerates = True
        await manager.confirm(H0, bus=BUS)
        assert seen(manager) == (card, "the host has not started", WORD)

    scene(shelf, does, **software)


def test_an_agent_says_its_word(shelf):
    """By name, or by the bus on which the host sees the GPU."""
    async def does(manager, host):
        manager.has_agent(H0)
        for gpu, words in ((A, {"name": A}), (B, {"bus": BUS + 1})):
            async def by(number, gpu=gpu, words=words):
                await asyncio.sleep(20)
                assert manager.verdicts(number)[gpu].lacks == (
                    "the agent of host 00000100 has not said that it sees the GPU")
                assert (await manager.confirm(H0, **words)).name == gpu
                # Once more is as good as once.
                await manager.confirm(H0, **words)

            took, task = await attached(manager, by=by, gpu=gpu)
            assert 20 <= took < 21 and task.progress is Progress.DONE
            assert seen(manager, gpu) == ("link", "windows", WORD)

    scene(shelf, does)


def test_an_agent_that_says_nothing(shelf):
    async def does(manager, host):
        manager.has_agent(H0)
        took, task = await attached(manager)
        assert 30 <= took < 31
        assert (task.progress, task.said) == (
            Progress.FAILED, f"GPU {A}: the agent of host 00000100 has not said that it sees the "
            "GPU")
        assert manager.pool.gpu(A).state is State.FREE
        manager.has_agent(H0, has_agent=False)
        assert (await attached(manager))[0] < 1

    scene(shelf, does)


@pytest.mark.parametrize("starts", [True, False])
def test_a_host_with_an_agent_has_time_to_start(shelf, starts):
    async def does(manager, host):
        manager.has_agent(H0)

        async def by(number):
            await asyncio.sleep(150)
            host.software.powered = starts
            await asyncio.sleep(10)
            if starts:
                await manager.confirm(H0, A)

        took, task = await attached(manager, by=by)
        if starts:
            assert 160 <= took < 161 and task.progress is Progress.DONE
        else:
            assert 200 <= took < 201
            assert task.said == f"GPU {A}: host 00000100 has not enumerated its ports"

    scene(shelf, does, powered=False)


def test_words_that_cannot_be(shelf):
    async def does(manager, host):
        await attached(manager)
        for what, error, says in (
                (lambda: manager.confirm(H0), Impossible,
                 "say which GPU the host sees, by name, bus or serial number"),
                (lambda: manager.confirm(0x200, A), Impossible,
                 "00000200 is a box; a host gets GPUs"),
                (lambda: manager.confirm(H1, A), Conflict, f"host 00000101 does not have GPU {A}"),
                (lambda: manager.confirm(H0, B), Conflict, f"host 00000100 does not have GPU {B}"),
                (lambda: manager.confirm(H0, B, bus=BUS), Conflict,
                 f"on bus 02 of host 00000100 is GPU {A}, not {B}"),
                (lambda: manager.confirm(H0, bus=9), Conflict,
                 "on bus 09 of host 00000100 is no GPU of the pool")):
            with pytest.raises(error, match=f"^{says}$"):
                await what()
        manager.network.cut.add(host)
        with pytest.raises(Conflict, match="^host 00000100 cannot be asked: "):
            await manager.confirm(H0, bus=BUS)
        manager.network.cut.clear()
        await asyncio.sleep(6)
        with pytest.raises(Impossible, match="^00000200 is a box; a host gets GPUs$"):
            manager.has_agent(0x200)

    scene(shelf, does)


def test_another_binding_needs_another_word(shelf):
    """And a host that was reset has the GPU again without one."""
    async def does(manager, host):
        manager.has_agent(H0)

        async def by(number):
            await asyncio.sleep(1)
            await manager.confirm(H0, A)

        await attached(manager, by=by)
        host.reset()
        await asyncio.sleep(8)
        assert seen(manager) == ("link",) and not manager.pool.gpu(A).binding.word
        await manager.confirm(H0, A)
        await manager.wait(manager.detach([A]).number)
        took, task = await attached(manager)
        assert took >= 30 and task.progress is Progress.FAILED

    scene(shelf, does)


# A manager that is killed ------------------------------------------------------------------------


def resumed(shelf, acts, *, agent, pause=0.0):
    """Kill a manager after ``acts`` while host 0 gets a GPU; the next one comes after ``pause``.
    Returns the number of acts, or the seconds that the attach took, and its end."""
    system = System()
    system.hosts[0].software.indicates = False
    bench = Bench(system, shelf, limits=LIMITS)
    began = []

    async def asks(manager):
        manager.has_agent(H0, has_agent=agent)
        await manager.pool.durable()
        before = bench.acts
        bench.kill_after(acts)
        number = manager.attach(H0, [A]).number
        began.append(system.now / 1e6)
        await manager.pool.durable()
        if agent:
            await asyncio.sleep(1)
            await manager.confirm(H0, bus=BUS)
        await manager.wait(number)
        bench.kill_after(None)
        return bench.acts - before

    async def first():
        async with bench.manager() as manager:
            return await asks(manager)

    async def second():
        bench.kill_after(None)
        async with bench.manager() as manager:
            if agent and manager.pool.gpu(A).state is State.ATTACHING:
                await asyncio.sleep(1)
                await manager.confirm(H0, A)
            await end(manager)
            await settled(system, manager.pool)
            assert not bench.wrong, bench.wrong
            gpu = manager.pool.gpu(A)
            return system.now / 1e6 - began[0], gpu.binding and gpu.binding.seen

    if acts is None:
        return run(first()), None
    with pytest.raises(Died):
        run(first())
    system.now += 1e6 * pause
    return run(second())


@pytest.mark.parametrize("agent", [False, True])
@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
def test_the_manager_is_killed_while_evidence_is_awaited(shelves, step, agent):
    """At any moment: the next manager has the GPU attached by the same evidence, or nothing was
    asked for."""
    acts, _ = resumed(shelves(), None, agent=agent)
    last = WORD if agent else "5 s of grace"
    found = {resumed(shelves(), n, agent=agent)[1] for n in range(0, acts, step)}
    assert found <= {None, ("link", "windows", last)} and len(found) == 2, found


def test_the_time_of_grace_goes_on_while_no_manager_runs(shelves):
    """What was seen before is in the records; that the deadline of the link is past does not
    matter."""
    acts, _ = resumed(shelves(), None, agent=False)
    took, found = resumed(shelves(), acts // 2, agent=False, pause=60)
    assert found == ("link", "windows", "5 s of grace") and 60 <= took < 63


# Stages, by themselves ----------------------------------------------------------------------------

EVIDENCE = st.builds(Evidence, present=st.booleans(), link=st.booleans(), session=st.booleans(),
                     runs=st.booleans(), windows=st.booleans(), in_use=st.booleans())
STEPS = st.lists(st.tuples(EVIDENCE, st.sampled_from((0.1, 1.0, 5.0, 40.0)),
                           st.booleans()), min_size=1, max_size=12)


@settings(deadline=None, max_examples=400)
@given(STEPS, st.booleans())
def test_no_verdict_is_better_than_its_evidence(steps, agent):
    """Whatever is seen in whatever order: no GPU is a host's without a card, or without its agent
    if there is one; what is late has been missing for the time that it had."""
    host = Node(1, Role.HOST, "", 1, 8, agent=agent)
    box = Node(2, Role.BOX, "", 2, 8)
    sight, now, learnt, word = Sight(LIMITS, 1000.0 + LIMITS.attach), 1000.0, 0.0, 0.0
    was_off, there = False, None
    for found, pause, says in steps:
        now += pause
        came = found.present and (found.link or not found.runs)
        there = (now if there is None else there) if came else None
        word = word or (now if says and came else 0.0)
        learnt = (learnt or now) if came and found.windows else 0.0
        was_off |= not found.in_use
        verdict = sight.judge(found, Binding(1, 0, 1, learnt=learnt, word=word), host, box, now)
        assert ("link" in verdict.seen) <= found.link and ("windows" in verdict.seen) <= (
            found.windows)
        if not verdict.lacks:
            assert came and (word or not agent)
            assert word or not found.runs or found.windows and (
                found.in_use and was_off or now >= learnt + LIMITS.grace)
            continue
        assert verdict.lacks == NEVER or "\n" not in verdict.lacks
        assert (verdict.lacks == NEVER) == (not came and found.session)
        if verdict.due is not None and came:
            # Each stage has its time, from the one before on.
            assert verdict.due >= there + min(LIMITS.attach, LIMITS.word, LIMITS.boot)
        elif not came:
            assert verdict.due >= 1000.0 + LIMITS.attach
