"""A stand-alone box with keys, through the pins of its board: the key comes out of its flash, and
strangers knock before the host that has it."""

import os
import random
from dataclasses import replace

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Lock, Timer, ValueChange
from cocotb.utils import get_sim_time

from dxpu.bringup import StandAloneState, Takes
from dxpu.fabric.wire.format import Role, SecurityMode
from dxpu.factory import FactoryRecord, FactoryState
from dxpu_boards.registry import BOARDS
from dxpu_host import Timeout
from dxpu_model.keyed import Ends
from dxpu_model.wire import Frame, Hello, build
from dxpu_sim.software_host.bench import TIMERS
from dxpu_sim.software_host.box_system import BOX_NODE, HOST_NODE

from .bench import SESSION, Run, powered, serve
from .spi_flash import SpiFlash

#: Key of the record; its second half is that of the box and its host.
KEY = bytes(range(0x60, 0x80))
PAIR = KEY[16:]
#: Time that a host has to prove its key, in us: 500 ms, divided by what the design is built with.
PROOF = 1000
#: As a PC has them, in the same proportion: its longest wait is a fifth of PROOF.
PC = replace(TIMERS, hello=10e-6, attach=6e-3)
#: A host that had the box before; its knock was recorded.
FORMER = 0x042

HELLO = Hello(nonce=1, tag_offered=2, tag_echoed=0, role=Role.HOST, slots=0, arq_mode=0,
              security_mode=0, largest_frame=1514, window=64, smallest_timer=250,
              give_up_timer=7500, capabilities=0, boot_counter=7, table_generation=0)


def knock(host, proof=None, node=BOX_NODE):
    """A HELLO of that host under a key; of one that has it, unless another ``proof`` is given."""
    proof = Ends(host, node, 0).knock(PAIR) if proof is None else proof
    keyed = bytes(4) + b"\x01" + bytes(3) + bytes(8) + proof
    nonce = int.from_bytes(keyed[:4], "big")
    body = replace(HELLO, security_mode=SecurityMode.KEYED, keyed=keyed, nonce=nonce)
    return build(Frame(body, src_node=host, dst_node=node))


class Line:
    """A mailbox that several send to: one frame after the other."""

    def __init__(self, mailbox):
        self._send, self._lock = mailbox.send, Lock()

    async def send(self, raw, token=None):
        async with self._lock:
            return await self._send(raw, token)


class KeyedRun(Run):
    """The box after power-on, with this record in its flash, and a host with the key."""

    def __init__(self, dut, *, record=None, key=PAIR):
        super().__init__(dut, timers=PC, key=key)
        self.mailbox.send = Line(self.mailbox).send
        place = BOARDS["versa-ecp5-5g"].record
        data = (record or FactoryRecord(bytes.fromhex("001122334455"), 7, KEY)).to_bytes()
        self.flash = SpiFlash({place + n: byte for n, byte in enumerate(data)})
        self.strange = random.Random(int(os.environ["DXPU_SEED"]) + 1)
        self.place, self.knocks, self.states = place, 0, []

    async def read(self, takes, state=FactoryState.VALID):
        """Wait until the record was read, and check whom the box takes."""
        self.dut.flash_cipo.value = 1
        await Timer(1, "us")
        cocotb.start_soon(serve(self.dut, self.flash))
        await powered()
        cocotb.start_soon(self.watch())
        assert int(self.dut.takes.value) == Takes.NOBODY.value
        await Timer(150, "us")
        assert int(self.dut.state.value) == state.value
        assert int(self.dut.takes.value) == takes.value

    async def watch(self):
        """Record when the state of the set-up changes, in us."""
        while True:
            self.states.append((get_sim_time("us"), self.alone()))
            await ValueChange(self.dut.alone)

    def alone(self):
        return StandAloneState(int(self.dut.alone.value))

    async def repeat(self, make, pause_us):
        """Frames of strangers, for ever; with pauses of this mean."""
        while True:
            await self.mailbox.send(make(self.strange))
            self.knocks += 1
            if pause_us:
                await Timer(round(self.strange.uniform(0, 2 * pause_us) * 1000), "ns")

    def use_it(self):
        """The host gets the box, with its first generation; returns the driver, and the time until
        the slot was bound, in us."""
        begun = get_sim_time("us")
        driver = self.driver()
        bound, state = self.states[-1]
        assert self.lit(SESSION) and state is StandAloneState.BOUND
        self.use(driver)
        return driver, bound - begun


def wrong(rng):
    """A HELLO of somebody without the key."""
    host = rng.randrange(1, 0xFFF)
    if host in (BOX_NODE, FORMER):
        return build(Frame(HELLO, src_node=HOST_NODE, dst_node=BOX_NODE))
    return knock(host, rng.randbytes(16))


@cocotb.test()
async def who_has_the_key_gets_the_box(dut):
    """Strangers have knocked before: in clear, under another key, with the knock of another
    host. Nothing was set up for them."""
    run = KeyedRun(dut)
    await run.read(Takes.KEY)
    right = Ends(HOST_NODE, BOX_NODE, 0).knock(PAIR)
    for frame in (build(Frame(HELLO, src_node=FORMER, dst_node=BOX_NODE)),
                  knock(FORMER, Ends(FORMER, BOX_NODE, 0).knock(KEY[:16])),
                  knock(FORMER, right), knock(HOST_NODE, right[:15] + bytes(1)),
                  knock(HOST_NODE, right, node=0x202)):
        await run.mailbox.send(frame)
        for _ in range(20):
            await Timer(1, "us")
            assert run.alone() is StandAloneState.LISTENS

    @bridge
    def job():
        with run.host:
            driver, time = run.use_it()
            # The box is its own: others are not heard.
            run.port.run(run.mailbox.send(knock(FORMER)))
            run.host.unbind(driver.device)
            run.use(run.driver())
        return time

    time = await job()
    print(f"stand_alone: with the key after {time:.0f} us")


@cocotb.test()
async def a_knock_that_was_recorded_does_not_hold_the_box(dut):
    """Somebody repeats the knock of another host, for ever: the box tries him, and lets others come
    then."""
    run = KeyedRun(dut)
    await run.read(Takes.KEY)
    cocotb.start_soon(run.repeat(lambda rng: knock(FORMER), 5))
    await Timer(40, "us")
    assert run.alone() is StandAloneState.PROVES

    @bridge
    def job():
        with run.host:
            return run.use_it()[1]

    time = await job()
    # The other one is tried once.
    assert PROOF / 2 < time < 2 * PROOF, time
    assert [state.name for _, state in run.states] == [
        "LISTENS", "WRITES", "PROVES", "WRITES", "LISTENS", "WRITES", "PROVES", "WRITES", "BOUND"]
    print(f"stand_alone: beside {run.knocks} repeated knocks after {time:.0f} us")


@cocotb.test()
async def a_flood_of_knocks_does_not_hold_the_box(dut):
    """Strangers without the key fill the line."""
    run = KeyedRun(dut)
    await run.read(Takes.KEY)
    cocotb.start_soon(run.repeat(wrong, 0))
    await Timer(50, "us")
    assert run.knocks > 20 and run.alone() is StandAloneState.LISTENS

    @bridge
    def job():
        with run.host:
            return run.use_it()[1]

    time = await job()
    assert time < PROOF, time
    assert [state.name for _, state in run.states] == [
        "LISTENS", "WRITES", "PROVES", "WRITES", "BOUND"]
    print(f"stand_alone: in a flood of {run.knocks} knocks after {time:.0f} us")


@cocotb.test()
async def without_a_key_anyone_is_taken(dut):
    """A record without one: the first host that is heard, in clear."""
    run = KeyedRun(dut, record=FactoryRecord(bytes.fromhex("001122334455"), 7), key=None)
    await run.read(Takes.ANYONE)

    @bridge
    def job():
        with run.host:
            run.use_it()

    await job()


@cocotb.test()
async def a_damaged_record_lets_nobody_in(dut):
    """It may have had a key."""
    run = KeyedRun(dut, key=None)
    run.flash.data[run.place + 20] ^= 1
    await run.read(Takes.NOBODY, FactoryState.DAMAGED)

    @bridge
    def job():
        with run.host:
            try:
                run.driver()
            except Timeout:
                return True

    assert await job() and run.alone() is StandAloneState.LISTENS
