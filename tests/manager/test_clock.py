"""dxpu_manager.clock: leases and tasks take their time, whatever is done to the machine's clock."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager import Limits, Phase, Pool, Progress, SqliteStore, State, Wish
from dxpu_manager.clock import boot, since_boot
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, System
from tests.support.pool_desk import H0, H1, A, B, cards_of, desk
from tests.support.simulated_time import run

LIMITS = Limits(attach=4.0, consent=3.0, patience=2.0, look=5.0, admits=True)
STEPS = pytest.mark.parametrize("step", [3600.0, -3600.0, 1e9, -1e9])


def scene(tmp_path, *parts):
    """Two hosts and a box with two GPUs; each part has a manager of its own."""
    system = System(2, ((Card(), Card()),))
    bench = Bench(system, tmp_path / "pool.db", limits=LIMITS)

    async def whole(part):
        async with desk(bench) as requests:
            await part(requests, system)

    for part in parts:
        run(whole(part))


def set_clock(requests, system, step):
    """Set the clock; whoever waits for a time looks at it."""
    system.step += step
    requests.manager.close(H1, is_closed=False)


@STEPS
def test_a_lease_takes_its_time(tmp_path, step):
    async def does(requests, system):
        def phase(number):
            return requests.pool.request(number).phase

        first = requests.ask(Wish(H0, 1), lease=20).number
        second = requests.ask(Wish(H1, 2), lease=20).number
        await asyncio.sleep(10)
        set_clock(requests, system, step)
        await asyncio.sleep(8)
        assert phase(first) is Phase.HOLDING
        assert requests.explain(second).endswith("could start in 2 s, when leases end")
        await asyncio.sleep(6)
        assert phase(first) is Phase.ENDED
        assert cards_of(system, system.hosts[1]) == {A, B}
        requests.renew(second, 30)
        await asyncio.sleep(20)
        set_clock(requests, system, -step)
        await asyncio.sleep(8)
        assert phase(second) is Phase.HOLDING
        await asyncio.sleep(4)
        assert phase(second) is Phase.ENDED

    scene(tmp_path, does)


@STEPS
def test_a_task_takes_its_time(tmp_path, step):
    """No attach is rolled back early, and none is tried for ever."""
    async def does(requests, system):
        system.fabric.cut.add(frozenset((system.hosts[0].mac, system.boxes[0].mac)))
        number = requests.manager.attach(H0, [A]).number
        await asyncio.sleep(1)
        set_clock(requests, system, step)
        await asyncio.sleep(2.5)
        assert requests.pool.task(number).progress is Progress.RUNNING
        await asyncio.sleep(2)
        assert requests.pool.task(number).progress is Progress.FAILED
        assert requests.pool.gpu(A).state is State.FREE

    scene(tmp_path, does)


@STEPS
@pytest.mark.parametrize("starts", ["the manager", "the machine"])
def test_what_starts_again_after_a_step_knows_what_is_left(tmp_path, step, starts):
    """Although nothing was changed since."""
    async def before(requests, system):
        requests.ask(Wish(H0, 1), lease=40)
        await asyncio.sleep(10)
        system.step += step
        await asyncio.sleep(2 * LIMITS.look)
        system.boot = "another" if starts == "the machine" else system.boot

    async def after(requests, system):
        await asyncio.sleep(12)
        assert requests.pool.request(1).phase is Phase.HOLDING
        await asyncio.sleep(10)
        assert requests.pool.request(1).phase is Phase.ENDED

    scene(tmp_path, before, after)


def test_a_clock_that_is_set_back_while_the_machine_starts(tmp_path):
    """A lease is longer then, by the time without a manager, and not for ever."""
    async def before(requests, system):
        requests.ask(Wish(H0, 1), lease=40)
        await asyncio.sleep(10)
        system.step, system.boot = -1e9, "another"

    async def after(requests, system):
        await asyncio.sleep(15)
        assert requests.pool.request(1).phase is Phase.HOLDING
        await asyncio.sleep(30)
        assert requests.pool.request(1).phase is Phase.ENDED

    scene(tmp_path, before, after)


class Machine:
    """Clocks of a machine, and the time that has passed indeed."""

    def __init__(self):
        self.passed, self.wall, self.started, self.boot = 0.0, 1e9, -100.0, "0"

    def passes(self, seconds):
        self.passed += seconds
        self.wall += seconds

    async def pool(self, store):
        started = self.started
        return await Pool.of(store, lambda: self.wall, boot=self.boot,
                             since_boot=lambda: self.passed - started)


HISTORIES = st.lists(st.tuples(
    st.sampled_from(("step", "step while the manager starts", "manager", "machine", "nothing")),
    st.sampled_from((-1e9, -3600.0, -2.0, -0.5, 0.5, 2.0, 3600.0, 1e9)),
    st.floats(0.0, 1e5)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(HISTORIES)
def test_any_history(acts):
    """Seconds of the pool are those that have passed, but for steps of less than a second before
    the machine starts; only who sets the clock while it starts deceives."""
    async def lives(machine, store, acts):
        """One run of the manager, and the time until the next one; returns the first second of
        each."""
        pool = await machine.pool(store)
        begins = pool.clock()
        zero = begins - machine.passed
        with pool.change():
            pass
        down = 0.0
        while acts:
            act, step, seconds = acts.pop(0)
            if act == "step":
                machine.wall += step
            elif act != "nothing":
                if act == "machine":
                    machine.boot, machine.started = f"{len(acts)}", machine.passed
                if act == "step while the manager starts":
                    machine.wall += step
                down = seconds
                break
            machine.passes(seconds)
            assert pool.clock() - machine.passed == pytest.approx(zero, abs=1e-3)
            assert pool.clock.wall(pool.clock()) == pytest.approx(machine.wall, abs=1e-3)
            with pool.change():
                pass
            await pool.durable()
        await pool.durable()
        ends = pool.clock()
        machine.passes(down)
        return begins, ends + down

    with tempfile.TemporaryDirectory() as folder:
        machine, acts, slack = Machine(), list(acts), 1.0 + 1e-3
        last = 1e9
        while acts:
            store = SqliteStore(Path(folder) / "pool.db")
            begins, following = run(lives(machine, store, acts))
            assert begins == pytest.approx(last, abs=slack)
            last = following
            run(store.close())


def test_the_clocks_of_this_machine(tmp_path):
    assert boot() == boot()
    assert 0 < since_boot() <= since_boot()
