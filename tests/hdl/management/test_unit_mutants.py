"""The unit of management with a step of its program left out: a short conversation finds it."""

from dataclasses import replace

import pytest

from dxpu.management import agent
from dxpu.management.program import If, Op, Part, Source
from dxpu.management.protocol import protocol
from dxpu_model import management as model
from dxpu_model.management import ManagerEnd, Message, Operation
from dxpu_model.wire import reseal
from tests.hdl.management.test_unit import KEY, MANAGER, NODE, Bench


def jump(to, number=0, **fields):
    """The jump to a place, with this condition: the first one, or another."""
    return lambda steps: [n for n, (f, target) in enumerate(steps) if target == to and all(
        f[name] == value for name, value in fields.items())][number]


def step(number=0, **fields):
    """The step with these fields."""
    return lambda steps: [n for n, (f, _) in enumerate(steps)
                          if all(f.get(name) == value for name, value in fields.items())][number]


#: What goes wrong, and which step is missing.
MUTANTS = {
    "a wrong tag is taken": jump("tag"),
    "a wrong knock is taken": jump("knock"),
    "a frame in another form is taken": jump("damaged", argument=If.DIFFERS.value),
    "damaged questions are taken": jump("damaged", argument=If.INTACT.value),
    "damaged requests are taken": jump("damaged", 1, argument=If.INTACT.value),
    "a counter that is not the next one is taken": jump("stale"),
    "any nonce is taken": jump("stale", 1),
    "a repetition with another tag is answered": jump("stale", 3),
    "the association has any address": step(op=Op.COMPARE, source=Source.CAME, a=4,
                                            to=Part.RECORD),
    "the nonce is not drawn anew": step(1, op=Op.STORE, source=Source.RANDOM),
    "the answer is not kept": step(op=Op.STORE, source=Source.TAG, to=Part.RECORD),
    "the counter is not kept": step(op=Op.STORE, source=Source.CAME, a=9, to=Part.RECORD),
    "events have one number": step(1, op=Op.STORE, to=Part.GLOBAL, b=28),
}


def resealed(frame, **changes):
    """A frame with other fields, and CRCs that fit."""
    return replace(Message.parse(frame), **changes).frame()


async def conversation(ctx, bench):
    """Each rule is broken once, by one who knows how, and kept then."""
    def manager():
        return ManagerEnd(KEY, 2, bench.rng.randbytes, node_mac=NODE, own_mac=MANAGER)

    def write(end, value):
        return end.request(1, [Operation.write(0x100, value), Operation(0x100)])

    await ctx.tick().repeat(2000)
    one = manager()
    ask = one.ask()
    await bench.ask(ctx, resealed(ask, follows=bytes(16)))
    await bench.ask(ctx, ask[:-1] + bytes([ask[-1] ^ 1]))
    one.take(await bench.ask(ctx, ask))
    first = write(one, 1)
    await bench.ask(ctx, reseal(first[:19] + b"\1" + first[20:]))  # for a slot
    message = Message.parse(first)
    wrong = message.follows[:-1] + bytes([message.follows[-1] ^ 1])
    await bench.ask(ctx, resealed(first, follows=wrong))
    await bench.ask(ctx, resealed(first, node_nonce=bytes(8)))
    one.take(await bench.ask(ctx, first))
    await bench.ask(ctx, first)
    await bench.ask(ctx, resealed(first, follows=wrong))
    second = write(one, 2)
    await bench.ask(ctx, second[:-1] + bytes([second[-1] ^ 1]))
    await bench.ask(ctx, model.seal(one._km, replace(one._told, kind=2, counter=3), bytes(8)
                                    ).frame())
    await bench.ask(ctx, model.seal(one._km, replace(one._told, kind=2, counter=2, dst_node=0x105),
                                    model.Request(1, (Operation.write(0x100, 9),)).pack()).frame())
    one.take(await bench.ask(ctx, second))
    await bench.ask(ctx, first)
    # Another association takes its place; what was recorded does not come back.
    two = manager()
    two.take(await bench.ask(ctx, two.ask()))
    two.take(await bench.ask(ctx, write(two, 3)))
    await bench.ask(ctx, first)
    await bench.ask(ctx, second)
    assert bench.registers.log == bench.model.registers.log
    for n in range(2):
        bench.model.happens(model.Event(1, n))
        ctx.set(bench.dut.event.payload, {"code": 1, "where": n, "zero": 0, "argument": 0})
        ctx.set(bench.dut.event.valid, 1)
        before = sum(map(len, bench.got))
        for _ in range(4000):
            if sum(map(len, bench.got)) > before:
                break
            await ctx.tick()
        bench.model._due = 0
        said = bench.model.tell(0)
        assert said in [packet.data for got in bench.got for packet in got[-1:]]
        acknowledges = two.take(said)[2]
        await bench.give(ctx, acknowledges)
        bench.model.take(acknowledges, 0)
        for _ in range(3000):
            if ctx.get(bench.dut.event.ready):
                break
            await ctx.tick()
        await ctx.tick()
        ctx.set(bench.dut.event.valid, 0)
        await ctx.tick().repeat(100)


def without(monkeypatch, missing):
    """Let units that are made have a program without this step."""
    made = protocol()
    made._steps[missing(made._steps)] = ({"op": Op.JUMP, "last": 1, "argument": 0}, None)
    monkeypatch.setattr(agent, "protocol", lambda: made)


def run():
    """The conversation with a unit."""
    bench = Bench(node=0x105)

    async def process(ctx):
        await conversation(ctx, bench)

    bench.run(process)


def test_the_conversation_goes_well():
    run()


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_step_is_found(name, monkeypatch):
    without(monkeypatch, MUTANTS[name])
    with pytest.raises((AssertionError, TypeError, IndexError)):
        run()
