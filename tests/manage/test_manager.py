"""dxpu_manage: a manager before golden models of nodes, over a bad network."""

import asyncio

import pytest

from dxpu_manage import Event, ManageError, NoAnswer, NoRegister, Operation, Refused, Stale
from tests.support.management_bench import FENCE_EPOCH
from tests.support.manager_bench import node, run


def test_registers_of_two_nodes_over_a_bad_network():
    """Each write acts once, in order; what is read is there."""
    made = [node(1), node(2)]

    async def do(manager, network):
        async def one(number, model, mac, key):
            there, done = manager.node(mac, key), []
            for n in range(1, 30):
                try:
                    await there.write(0x100, n)
                except NoAnswer as error:  # it may have been done
                    assert str(error) == (f"node {mac.hex(':')} does not answer; the write may "
                                          "have been done")
                done.append(n)
                for _ in range(3):  # a request without an answer is made again once
                    try:
                        value, = await there.read(0x100)
                        break
                    except NoAnswer:
                        continue
                assert value in (n, *done)
            log = [value for address, value in model.registers.log if address == 0x100]
            assert log == sorted(set(log)) and len(log) > 25
            assert there.identity.serial == number and there.epoch == 1

        await asyncio.gather(*(one(n, *what) for n, what in enumerate(made, 1)))
        assert network.sent > 2 * 2 * 29

    run(do, *(model for model, _, _ in made), loss=0.2)


def test_refusals_are_one_line_each():
    model, mac, key = node(1)

    async def do(manager, network):
        there = manager.node(mac, key)
        name = mac.hex(":")
        with pytest.raises(NoRegister, match=f"^node {name}: no 2 registers from 0x03fc on can be "
                                             "read; nothing was done$"):
            await there.read(0x3FC, 2)
        with pytest.raises(NoRegister, match="no 1 registers from 0x0300 on can be written"):
            await there.request(Operation.write(0x100, 5), Operation.write(0x300, 1))
        with pytest.raises(Refused, match=f"^node {name} refuses the request: an epoch of 0"):
            await there.request(Operation.write(0x100, 5), epoch=0)
        with pytest.raises(ManageError, match=f"^node {name}: a request has 340 bytes at most, not "
                                              "344: make two of it$"):
            await there.request(Operation.write(0x100, *range(80)), Operation(0x100))
        await there.request(Operation.write(0x100, 5), epoch=7)
        with pytest.raises(Stale, match=f"^node {name} has epoch 7, which is higher than ours"):
            await there.write(0x100, 6)
        assert await there.read(0x100) == (5,)
        nobody = manager.node(mac, bytes(16))
        with pytest.raises(NoAnswer, match=f"^node {name} does not answer: is it there"):
            await nobody.read(0)
        assert model.counters == {"knock": 4}

    run(do, model)


def test_a_node_that_was_reset_is_found_again():
    """A read is made again under another association; a write is not."""
    model, mac, key = node(1)

    async def do(manager, network):
        there = manager.node(mac, key)
        await there.write(0x100, 5)
        network.nodes[0] = node(1, start=1)[0]
        assert await there.read(0x104) == (0x104 << 16,)
        network.nodes[0] = node(1, start=2)[0]
        with pytest.raises(NoAnswer, match="the write may have been done"):
            await there.write(0x100, 6)
        await there.write(0x100, 7)
        assert network.nodes[0].registers.log == [(FENCE_EPOCH, 1), (0x100, 7)]

    run(do, model)


def test_discovery_and_events():
    """Nodes without a number are found by what they say; events come once each, in order, though
    frames are lost; what is no announcement is ignored."""
    made = [node(n) for n in (3, 1, 2)]

    async def do(manager, network):
        finding = asyncio.ensure_future(manager.discover(0.05))
        await asyncio.sleep(0)
        for model, _, _ in made:
            network.loss = 0
            network.give(model.announcement())
            network.give(model.announcement()[:-1] + b"\0")
        network.give(bytes(60))
        assert [found.serial for found in await finding] == [1, 2, 3]
        assert list(manager.announced) == [mac for _, mac, _ in made]
        model, mac, key = made[1]
        there = manager.node(mac, key)
        await there.write(0x100, 1)
        network.loss = 0.3
        for n in range(5):
            model.happens(Event(1, n))
        for _ in range(400):
            if not model._events:
                break
            network.send(bytes(60))  # nobody's; nodes say what is due
            await asyncio.sleep(0.005)
        assert [there.events.get_nowait().where for _ in range(5)] == list(range(5))
        assert there.events.empty()

    run(do, *(model for model, _, _ in made))



def test_announcements_without_number_are_bounded(monkeypatch):
    """Whoever forges more of them finds no room, and the next time begins anew."""
    monkeypatch.setattr("dxpu_manage.manager.ANNOUNCED", 4)
    made = [node(n) for n in range(1, 8)]

    async def do(manager, network):
        async def found(*models):
            looks = asyncio.ensure_future(manager.discover(0.5))
            for _ in range(2):
                await asyncio.sleep(0.1)
                for model in models:
                    network.give(model.announcement())
            return [identity.mac for identity in await looks]

        assert await found(*(model for model, _, _ in made)) == [mac for _, mac, _ in made[:4]]
        assert await found(made[6][0]) == [made[6][1]]

    run(do, *(model for model, _, _ in made))


def test_who_holds_a_number():
    made = [node(1), node(2)]

    async def do(manager, network):
        one, two = (manager.node(mac, key) for _, mac, key in made)
        assert manager.holder(5) is None and manager.holder(0xFFF) is one
        await one.ask_under(5)
        assert manager.holder(5) is one and manager.holder(0xFFF) is two
        await two.ask_under(5)
        assert manager.holder(5) is one
        await one.ask_under(6)
        assert (manager.holder(5), manager.holder(6)) == (two, one)
        await two.ask_under(6)
        await two.ask_under(0xFFF)
        assert (manager.holder(5), manager.holder(6), manager.holder(0xFFF)) == (None, one, two)

    run(do, *(model for model, _, _ in made))
