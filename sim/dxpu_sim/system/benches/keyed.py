"""Sessions under keys in the whole system, as a manager sets them up by registers.

Options of the design come as JSON in ``$DXPU_SYSTEM``.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.system.setup import Proxy, bind, give_key, let_open, wait_for_session, wait_for_slot
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: Waits that a simulation can wait for: 31 us, and 51 us after the end of a session.
TIMERS = {"boot": 1, "wait": 60, "quiet": 100}
#: Register ``control.security`` of a proxy whose peers all need a key.
STATE = {"keys": 1, "clear": 0, "noise_failed": 0, "whole": 0,
         "managed": int(OPTIONS.get("managed", False))}
#: Longest time until a session is open again, in us.
PATIENCE = 3000


async def security(proxy: Proxy):
    """What register ``control.security`` says of trust."""
    found = await proxy.read("control.security")
    del found["observed"]
    return found


async def key_state(proxy: Proxy):
    """Whether a proxy has a key of peer 0, and a next one."""
    state = await proxy.read("control.peer[0].key")
    return state["valid"], state["next"]


async def counter(proxy: Proxy, name):
    """Total of a counter, which is late by a microsecond."""
    await Timer(2, "us")
    return (await proxy.read(f"counters.{name}"))["count"]


class Pair:
    """The host, a box, and who uses its GPU."""

    def __init__(self, dut):
        self.system = SimulatedSystem(dut, OPTIONS)
        self.host, self.box = self.system.host, self.system.boxes[0]
        self.both = (self.host, self.box)

    async def random(self):
        """Wait until both have random words."""
        await Timer(1, "us")
        for proxy in self.both:
            assert await security(proxy) == dict(STATE, random=0)
        await Timer(40, "us")  # 1024 bits are tested, and 2048 make a seed; a bit a cycle
        for proxy in self.both:
            assert (await security(proxy))["random"] == 1

    async def use(self):
        """Enumerate the GPU and copy there and back."""
        await self.box.write("control.present", slots=1)
        await bind(self.host, 0, self.box, 1, generation=1, operation_id=1)
        await wait_for_slot(self.host, 0, link=1)
        self.system.routes.present.add(0)
        await self.system.rc.enumerate()
        driver, = find_gpus(self.system.rc)
        await driver.open()
        await self.copy(driver)
        return driver

    async def copy(self, driver):
        """Copy 2000 bytes there and back."""
        data = self.system.rng.randbytes(2000)
        assert await driver.copy_there_and_back(data, 0) == data

    async def opened(self, count):
        """Wait until the session was opened so often, by both ends."""
        for proxy in self.both:
            await wait_for_session(proxy, 0, timeout_us=PATIENCE)
            total = await counter(proxy, "fabric_session_opened")
            assert total == count, (proxy.name, total)


@cocotb.test()
async def a_session_opens_when_both_have_the_key(dut):
    """Nothing is said before; half a key is none; nobody can read a key; the GPU works."""
    pair, key = Pair(dut), bytes(range(0xA0, 0xB0))
    await pair.random()
    # Without a key, as it were one with a key that nobody has.
    await let_open(pair.host, pair.box, peer_host=0, peer_box=0, **TIMERS)
    for proxy in pair.both:
        assert (await security(proxy))["clear"] == 1
        await proxy.write("control.session[0].mode", opener=0)
        await proxy.write("control.peer[0].node", valid=0)
        await Timer(5, "us")
        assert (await security(proxy))["clear"] == 0
    opened = [await counter(proxy, "fabric_session_opened") for proxy in pair.both]
    sent = [await counter(proxy, "fabric_tx_frames") for proxy in pair.both]
    for proxy, other, mode in ((pair.host, pair.box, 1), (pair.box, pair.host, 2)):
        await proxy.add_peer(0, other.node, clear=False)
        # Tags of software are no way around it.
        await proxy.write("control.session[0].tags", tx=7, rx=7)
        await proxy.write("control.session[0].open", strobe=1)
        assert await proxy.read("control.session[0].tags") == {"tx": 0, "rx": 0}
        await proxy.write("control.session[0].mode", opener=mode)
    await Timer(200, "us")
    for n, proxy in enumerate(pair.both):
        assert await key_state(proxy) == (0, 0)
        # At most the FENCE of the session that was.
        assert await counter(proxy, "fabric_tx_frames") <= sent[n] + 1
    # Three words of four.
    for n in range(3):
        await pair.box.write(f"control.key[{n}].word", bytes=n)
    assert (await security(pair.box))["whole"] == 0
    await pair.box.write("control.peer[0].key")
    assert await key_state(pair.box) == (0, 0) and await counter(pair.box, "key_incomplete") == 1
    for proxy in pair.both:
        await give_key(proxy, 0, key)
        for n in range(4):
            assert await proxy.read(f"control.key[{n}].word") == {"bytes": 0}
        assert await key_state(proxy) == (1, 0)
    await pair.opened(opened[0] + 1)
    await pair.use()
    for proxy in pair.both:
        assert await security(proxy) == dict(STATE, random=1)
        for name in ("knock", "proof"):
            assert await counter(proxy, f"fabric_opening_{name}") == 0


@cocotb.test()
async def another_key_opens_nothing(dut):
    """The box has a key that differs in one bit; then it gets the right one."""
    pair, key = Pair(dut), bytes(range(16))
    await pair.random()
    await let_open(pair.host, pair.box, peer_host=0, peer_box=0, key=key, **TIMERS)
    await pair.opened(1)
    await give_key(pair.box, 0, key[:15] + bytes([key[15] ^ 0x80]))
    for proxy in pair.both:
        await proxy.write("control.session[0].open", strobe=1)
    await Timer(1000, "us")
    assert await counter(pair.box, "fabric_opening_knock") > 0
    for proxy in pair.both:
        assert await counter(proxy, "fabric_session_opened") == 1
    await give_key(pair.box, 0, key)
    await pair.opened(2)


@cocotb.test()
async def keys_change_while_the_gpu_is_in_use(dut):
    """The next key is given to one end, then to the other: the session stays. The next session is
    opened under it, and the old key is gone."""
    pair, keys = Pair(dut), (bytes(range(16)), bytes(range(16, 32)))
    await pair.random()
    await let_open(pair.host, pair.box, peer_host=0, peer_box=0, key=keys[0], **TIMERS)
    await pair.opened(1)
    driver = await pair.use()
    for n, proxy in enumerate(pair.both):
        await give_key(proxy, 0, keys[1], following=True)
        assert await key_state(proxy) == (1, 1)
        await pair.copy(driver)
        if n == 0:
            assert await key_state(pair.box) == (1, 0)
    assert await counter(pair.host, "fabric_session_lost") == 0
    pair.system.checker.fault("gpu0")
    await pair.host.write("control.session[0].open", strobe=1)
    await pair.opened(2)
    await Timer(200, "us")
    # The opener tries both in turn, so the session may be under either; the next one comes with
    # the attempt after that.
    for _ in range(4):
        if [await key_state(proxy) for proxy in pair.both] == [(1, 0), (1, 0)]:
            break
        await pair.host.write("control.session[0].open", strobe=1)
        await Timer(1000, "us")
    assert [await key_state(proxy) for proxy in pair.both] == [(1, 0), (1, 0)]
    # Under the old key nothing opens any more.
    count = await counter(pair.box, "fabric_session_opened")
    await give_key(pair.host, 0, keys[0])
    await pair.host.write("control.session[0].open", strobe=1)
    await Timer(1000, "us")
    assert await counter(pair.box, "fabric_session_opened") == count
    await give_key(pair.host, 0, keys[1])
    await pair.opened(count + 1)
