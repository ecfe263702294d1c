"""Several managers as processes before one etcd, while wishes come without a break: the leader is
killed, stopped or cut off; another takes over, nothing is lost, and who led before changes nothing.
"""

import asyncio
import os
import signal
import tempfile
import time
from contextlib import ExitStack

import pytest

from dxpu_cli.bench.etcd_members import Cluster
from dxpu_cli.bench.light_nodes import KEYS, Line, LightNodes
from dxpu_cli.bench.takeover import ManagerProcess
from dxpu_manage import Manager
from dxpu_manager import Limits, Nodes, Pool, PoolManager
from dxpu_manager.store import replay
from tests.support.etcd_bench import Cable, need_etcd
from tests.support.pool_desk import end, settled

pytest.importorskip("aetcd", reason="manager: no aetcd (the extra `manager`)")

from dxpu_manager.etcd import Etcd, EtcdStore


class Scene:
    """Managers, each with a cable of its own to each member of etcd, before light nodes."""

    def __init__(self, stack, folder, members, managers=3):
        self.cluster = stack.enter_context(Cluster(folder, members))
        # Names of sockets are short.
        short = stack.enter_context(tempfile.TemporaryDirectory())
        self.nodes = stack.enter_context(LightNodes(os.path.join(short, "nodes")))
        self.managers = []
        for _ in range(managers):
            # Slow ones, so that much is on the way when something happens.
            cables = [stack.enter_context(Cable(port, 0.05)) for port in self.cluster.ports]
            made = ManagerProcess(",".join(f"127.0.0.1:{cable.port}" for cable in cables), short,
                                  self.nodes.path)
            stack.callback(made.kill)
            made.cables = cables
            self.managers.append(made)
        for manager in self.managers:
            manager.until("waits")
        self.own = os.path.join(short, "test")

    def next_leader(self, *others):
        """The manager that leads, none of some others."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for manager in self.managers:
                if manager not in others and manager.has_said("leads"):
                    return manager
            time.sleep(0.02)
        return pytest.fail("nobody leads")

    def commits_of(self, manager, since):
        """Rows that a manager has changed since a time."""
        return [at for at, path in self.nodes.commits if path == manager.own and at > since]

    def frames_of(self, manager, since):
        """Frames that a manager has sent since a time."""
        return [at for at, path in self.nodes.frames if path == manager.own and at > since]

    async def at_rest(self):
        """Lead by oneself, let all tasks come to an end, and see that all is as the records say;
        returns records of tasks, events, and what etcd knows of each event's key."""
        etcd = Etcd(self.cluster.endpoints, prefix="/bench/")
        store, line = await EtcdStore.lead(etcd, ttl=20), Line(self.own, self.nodes.path)
        pool = await Pool.of(store)
        fabric = Manager(line, line.mac, epoch=store.epoch)
        limits = Limits(admits=True, again=0.05)
        async with fabric, PoolManager(pool, Nodes(fabric, KEYS), limits) as manager:
            for _ in range(2):
                await manager.look_at_all()
                await end(manager)
            assert not manager.down
            await settled(self.nodes, pool)
            events = [event async for event in store.events()]
            keys = [pair async for pair in etcd.pages(
                b"/bench/store/00000001/event/", b"/bench/store/00000001/event0", 20)]
        line.close()
        await store.close()
        return replay(events), events, keys


def kill(leader):
    """The whole machine, with what is on the way."""
    cut(leader)
    leader.signal(signal.SIGKILL)


def stop(leader):
    leader.signal(signal.SIGSTOP)


def cut(leader):
    for cable in leader.cables:
        cable.cut()


def resume(leader):
    leader.signal(signal.SIGCONT)


def mend(leader):
    for cable in leader.cables:
        cable.mend()


@pytest.mark.parametrize("members, harm, heal", [
    (1, kill, None), (1, stop, resume), (1, cut, mend), (3, kill, None)],
    ids=["killed", "stopped", "cut off", "killed, three members"])
def test_a_leader_ends_under_load(tmp_path, members, harm, heal):
    """Twice, one leader after the other."""
    need_etcd()
    with ExitStack() as stack:
        scene, gone = Scene(stack, tmp_path, members), []
        for _ in range(2):
            leader = scene.next_leader(*gone)
            leader.until("done", 10)
            harm(leader)
            gone.append(leader)
            new = scene.next_leader(*gone)
            assert new.has_said("leads")[0]["epoch"] > leader.has_said("leads")[0]["epoch"]
            new.until("done", 10)
            if heal is not None:
                healed = time.monotonic()
                heal(leader)
                leader.until("deposed")
                leader.until("ended")
                # It was stopped in the middle of what it did, and does nothing more of it.
                assert not scene.frames_of(leader, healed)
            began = new.has_said("leads")[0]["time"]
            assert not scene.commits_of(leader, began) and scene.commits_of(new, began)
        new.signal(signal.SIGTERM)
        new.until("ended")
        records, events, keys = asyncio.run(scene.at_rest())
        # All that was told to anybody is there, by whoever it was told.
        numbers = set()
        for manager in scene.managers:
            for wish in manager.has_said("written"):
                key = f"task/{wish['number']}"
                assert key not in numbers, "two wishes have one number"
                numbers.add(key)
                first = next(event for event in events if event.key == key)
                assert first.said == (f"task {wish['number']}: {wish['job']} "
                                      f"{', '.join(wish['gpus'])}, host {wish['host']:08x}")
                # Tasks that ended long ago are in the events only.
                assert key in records or len(events) > 3000
        assert len(numbers) > 30
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert {pair.version for pair in keys} == {1}
        # Events of each manager come before those of the next one.
        epochs = sorted(line["epoch"] for manager in scene.managers
                        for line in manager.has_said("leads"))
        assert len(epochs) == 3
        written = [pair.mod_revision for pair in keys]
        assert written == sorted(written)
