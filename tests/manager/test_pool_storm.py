"""dxpu_manager: whatever happens to nodes, network and managers, in whatever order, no host reads
what another has left, and all is as the records say when it is over."""

import asyncio
import json
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dxpu_manager import Cause, Job, Limits, PoolError, State, Task
from dxpu_manager.evidence import WORD
from dxpu_sim.system.agents import Card, Software
from tests.support.pool_bench import Bench, Died, System
from tests.support.pool_desk import are_as_recorded, end, settled
from tests.support.simulated_time import run

GPUS = ("00000200.1", "00000200.2", "00000201.1")
HOSTS = (0x100, 0x101)
NODES = range(4)

#: GPUs to attach are those of the free ones, to detach those of the attached ones with such a place
#: in their order; if there are none, any, which is refused.
WISHES = (
    st.tuples(st.just("attach"), st.sampled_from(HOSTS), st.integers(0, 2), st.integers(1, 2)),
    st.tuples(st.just("detach"), st.integers(0, 2), st.booleans()),
)
ACTS = st.one_of(
    *WISHES, *WISHES, *WISHES,
    st.tuples(st.just("cancel"), st.integers(0, 2)),
    st.tuples(st.just("reset"), st.sampled_from(NODES)),
    st.tuples(st.just("cut"), st.sampled_from(NODES)),
    st.tuples(st.just("mend"), st.sampled_from(NODES)),
    st.tuples(st.just("part"), st.sampled_from((0, 1)), st.sampled_from((2, 3))),
    st.tuples(st.just("pull"), st.sampled_from(GPUS)),
    st.tuples(st.just("plug"), st.sampled_from(GPUS)),
    st.tuples(st.just("break"), st.sampled_from(GPUS), st.booleans()),
    st.tuples(st.just("refuse"), st.sampled_from((0, 1)), st.booleans()),
    st.tuples(st.just("software"), st.sampled_from((0, 1)),
              st.sampled_from(("powered", "enumerates", "leaves_room", "indicates"))),
    st.tuples(st.just("agent"), st.sampled_from(HOSTS), st.booleans()),
    st.tuples(st.just("confirm"), st.sampled_from(HOSTS), st.sampled_from(GPUS)),
    st.tuples(st.just("link"), st.sampled_from(NODES), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("link"), st.sampled_from(NODES), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("balance")),
    st.tuples(st.just("kill"), st.integers(0, 40)),
)
#: Seconds until the next act: a request, a step of a task, a task, all time-outs.
PAUSES = st.sampled_from((0.0, 0.003, 0.02, 0.3, 3.0, 15.0))

#: Short times, so that all of them pass in a storm.
LIMITS = Limits(attach=4.0, boot=8.0, word=3.0, grace=2.0, consent=3.0, patience=2.0, look=5.0,
                calm=2.0, admits=True)


class Storm:
    """What happens, to one system and its managers."""

    def __init__(self, folder, loss):
        wipes = Card(), Card(wipes=False)
        self.system = System(2, (wipes, (Card(),)), rows=2, paths=2)
        self.cards = {"00000200.1": wipes[0], "00000200.2": wipes[1],
                      "00000201.1": self.system.boxes[1].cards[1]}
        self.system.boxes[0].wipe(2)
        self.bench = Bench(self.system, Path(folder) / "pool.db", loss=loss, limits=LIMITS)

    def place(self, name):
        """Box and slot of a GPU."""
        return self.system.boxes[int(name[:8], 16) - 0x200], int(name[9:])

    def of_state(self, manager, state):
        """GPUs of a state, or all if there are none."""
        return [name for name in GPUS if f"gpu/{name}" in manager.pool.records
                and manager.pool.gpu(name).state is state] or list(GPUS)

    async def do(self, manager, act, *what):
        system = self.system
        agents = system.agents
        match act:
            case "attach":
                host, first, count = what
                free = self.of_state(manager, State.FREE)
                manager.attach(host, (free[first % len(free):] + free)[:count])
            case "detach":
                attached = self.of_state(manager, State.ATTACHED)
                manager.detach([attached[what[0] % len(attached)]], force=what[1])
            case "cancel":
                tasks = [task.number for task in manager.pool.all(Task) if not task.progress.ended]
                manager.cancel(tasks[what[0] % len(tasks)] if tasks else 1)
            case "reset":
                agents[what[0]].reset()
            case "cut":
                manager.network.cut.add(agents[what[0]])
            case "mend":
                manager.network.cut.discard(agents[what[0]])
            case "part":
                system.fabric.cut ^= {frozenset(agents[n].mac for n in what)}
                system.fabric.settle()
            case "pull":
                box, slot = self.place(what[0])
                box.cards.pop(slot, None)
                system.fabric.settle()
            case "plug":
                self.plug(what[0])
            case "break":
                self.cards[what[0]].works = not what[1]
                system.fabric.settle()
            case "refuse":
                system.hosts[what[0]].consents = not what[1]
            case "software":
                software = system.hosts[what[0]].software
                setattr(software, what[1], not getattr(software, what[1]))
                system.fabric.settle()
            case "agent":
                manager.has_agent(what[0], has_agent=what[1])
            case "confirm":
                await manager.confirm(*what)
            case "link":
                agents[what[0]].link(what[1], up=what[2])
            case "balance":
                manager.rebalance()
            case "kill":
                self.bench.kill_after(*what)

    def plug(self, name):
        box, slot = self.place(name)
        if slot not in box.cards:
            box.plug(slot, self.cards[name])

    def judge(self, manager, event):
        """A GPU that becomes a host's is so by evidence; a host with an agent has its word."""
        held = json.loads(event.text or "{}")
        if not event.key.startswith("gpu/") or held["cause"] != Cause.EVIDENCE or (
                held["state"] != State.ATTACHED) or f"-> {State.ATTACHED}" not in event.said:
            return
        binding, tasks = held["binding"], list(manager.pool.all(Task))
        job = next(task.job for task in reversed(tasks) if event.key[4:] in task.gpus
                   and task.job is not Job.DETACH)
        seen = binding["seen"]
        is_right = seen and seen[0] in ("link", "card")
        if job is Job.ATTACH:
            is_right = is_right and (seen[-1] == WORD) == bool(binding["word"]) and (
                seen[-1] in (WORD, "the host has not started") or seen[1] == "windows")
        if not is_right:
            self.bench.wrong.append(f"{event.said}: {binding}")

    def calm(self):
        """Nothing is wrong any more."""
        self.bench.kill_after(None)
        for name, card in self.cards.items():
            card.works = True
            self.plug(name)
        for host in self.system.hosts:
            host.consents, host.software = True, Software()
        for agent in self.system.agents:
            for path in range(2):
                agent.link(path, up=True)
        self.system.fabric.cut.clear()
        self.system.fabric.settle()

    async def rage(self, acts):
        """Do acts, as long as the manager lives; returns what is left of them."""
        async with self.bench.manager(watches=True) as manager:
            manager.pool.listeners.append(partial(self.judge, manager))
            await asyncio.sleep(2)
            while acts:
                act, pause = acts.pop(0)
                try:
                    await self.do(manager, *act)
                except PoolError as error:
                    assert "\n" not in str(error)
                await asyncio.sleep(pause)
            manager.network.cut.clear()
            # A look by which nothing is found out is nobody's fault while frames are lost.
            manager.network.loss = 0.0
            self.calm()
            for _ in range(8):
                await asyncio.sleep(LIMITS.look)
                await end(manager)
            assert not manager.down and not manager.strangers
            assert not self.bench.wrong, self.bench.wrong
            await settled(self.system, manager.pool)
            are_as_recorded(self.system, manager.pool)
            # Nothing that could be had is lost.
            for gpu in GPUS:
                held = manager.pool.gpu(gpu)
                assert held.state in (State.FREE, State.ATTACHED, State.QUARANTINED, State.FAILED)


def storm(acts, loss):
    """All acts, by as many managers as it takes."""
    with tempfile.TemporaryDirectory() as folder:
        storm, left = Storm(folder, loss), list(acts)
        for _ in range(len(acts) + 1):
            try:
                run(storm.rage(left))
                return
            except Died:
                storm.bench.kill_after(None)
        pytest.fail("a manager died that nobody has killed")


STORMS = given(st.lists(st.tuples(ACTS, PAUSES), min_size=4, max_size=30),
               st.sampled_from((0.0, 0.1)))
SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=60, **SETTINGS)
@STORMS
def test_any_storm(acts, loss):
    storm(acts, loss)


@pytest.mark.long
@settings(max_examples=5000, **SETTINGS)
@STORMS
def test_many_storms(acts, loss):
    storm(acts, loss)
