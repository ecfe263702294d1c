"""dxpu_manager.words: agents say the serial numbers of GPUs, and confirm GPUs by them."""

import asyncio

import pytest

from dxpu_manager import Conflict, Progress
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import System
from tests.support.pool_desk import H0, H1, LIMITS, A, B, at_rest

#: The bus of port 0 of a host.
BUS = 2


async def confirmed(manager, host, gpu, **words):
    """Attach a GPU to a host with an agent, which says a word then."""
    task = manager.attach(host, [gpu])
    await asyncio.sleep(1)
    said = await manager.confirm(host, **words)
    assert said.name == gpu
    task = await manager.wait(task.number)
    assert task.progress is Progress.DONE, task.said
    return manager.pool.gpu(gpu)


async def said(pool):
    """What events say of agents and serial numbers."""
    await pool.durable()
    return [event.said async for event in pool.store.events()
            if "sees it" in event.said or "serial" in event.said]


def test_a_gpu_is_confirmed_by_a_serial_number_that_was_said_before(shelf):
    """With its bus or its name once, and alone whenever a host has it later; another host, too."""
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        manager.has_agent(H0)
        manager.has_agent(H1)
        with pytest.raises(Conflict, match="^no GPU of host 00000100 is known by serial number S1: "
                                           "say its name or its bus, too, once$"):
            await manager.confirm(H0, card="S1")
        gpu = await confirmed(manager, H0, A, bus=BUS, card="S1")
        assert gpu.serial == "S1" and "word of the agent" in gpu.binding.seen
        # Once more is as good as once, and another number is written down though all is confirmed.
        await manager.confirm(H0, card="S1")
        gpu = await confirmed(manager, H0, B, name=B)
        assert gpu.serial == ""
        assert (await manager.confirm(H0, B, card="S2")).serial == "S2"
        await manager.wait(manager.detach([A]).number)
        assert pool.gpu(A).serial == "S1"
        # Not of a host that does not have it.
        with pytest.raises(Conflict, match="^no GPU of host 00000100 is known"):
            await manager.confirm(H0, card="S1")
        gpu = await confirmed(manager, H1, A, card="S1")
        assert gpu.binding.host == H1
        # A card is not in two slots.
        with pytest.raises(Conflict, match=f"^serial number S1 is that of GPU {A}, which host "
                                           "00000101 has$"):
            await manager.confirm(H0, B, card="S1")
        assert pool.gpu(B).serial == "S2"
        assert await said(pool) == [
            f"GPU {A}: the agent of host 00000100 sees it, serial number S1",
            f"GPU {B}: the agent of host 00000100 sees it",
            f"GPU {B}: the agent of host 00000100 sees it, serial number S2",
            f"GPU {A}: the agent of host 00000101 sees it"]

    at_rest(System(2, ((Card(), Card()),)), shelf, does)


def test_another_card_in_a_slot_is_told(shelf):
    """One that was pulled is not known any more; one that was exchanged unseen is said to be
    another one, and one that has moved is not known where it was."""
    async def does(requests, system):
        manager, pool, box = requests.manager, requests.pool, system.boxes[0]
        manager.has_agent(H0)
        await confirmed(manager, H0, A, name=A, card="S1")
        await confirmed(manager, H0, B, name=B, card="S2")
        await manager.wait(manager.detach([A, B]).number)
        box.cards.pop(1)
        system.fabric.settle()
        await asyncio.sleep(LIMITS.look + 2)
        box.plug(1, Card())
        await asyncio.sleep(LIMITS.look + 2)
        assert (pool.gpu(A).serial, pool.gpu(B).serial) == ("", "S2")
        # That of the other slot is in this one now.
        await confirmed(manager, H0, A, name=A, card="S2")
        assert (pool.gpu(A).serial, pool.gpu(B).serial) == ("S2", "")
        assert (await manager.confirm(H0, A, card="S3")).serial == "S3"
        assert (await said(pool))[2:] == [
            f"GPU {B} has another serial number: S2 is {A}",
            f"GPU {A}: the agent of host 00000100 sees it, serial number S2",
            f"GPU {A}: the agent of host 00000100 sees it, serial number S3; before it was S2: "
            "another card is there"]

    at_rest(System(1, ((Card(), Card()),)), shelf, does)
