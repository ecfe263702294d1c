"""Hot-plug of the virtual switch: events, interrupts, and a driver that lives on them."""

import random

import pytest
from dxpu.switch import Identity
from dxpu.switch.config.identity import SlotOptions
from dxpu.switch.hotplug.wake import WakeUp
from dxpu_model.switch import UP, GoldenSwitch
from dxpu_model.tlp import Tlp
from dxpu_sim.switch.golden import switch_maps
from tests.support.hotplug_bench import COMMAND, LINK, MSI, PCIEHP, PMCSR, SLOT, Host
from tests.support.testbench import check_stream, seed, simulate

#: Link Control 2 and Link Status 2.
LINK2 = 0x90 // 4

FULL = Identity(slot=SlotOptions(surprise=False, attention_indicator=True, power_controller=True,
                                 command_completed=True))


async def irq(ctx, host, drivers, cycles=80):
    """Let the drivers serve interrupts until none comes for some time. INTx is shared."""
    quiet = 0
    while quiet < cycles:
        await ctx.tick()
        quiet += 1
        wires = {code & 3: code < 0x24 for code in host.messages}
        for d in drivers:
            msi = (0x1_FEE0_0000 + 16 * d.port, 0x40 + d.port)
            if msi in host.msis or wires.get(d.port % 4):
                host.msis = [other for other in host.msis if other != msi]
                await d.serve(ctx)
                quiet = 0


@pytest.mark.parametrize(("width", "identity", "msi"), [
    (64, None, True), (512, FULL, False),
    *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (32, None, True), (32, FULL, False), (64, None, False), (512, FULL, True)))])
def test_a_driver_follows_the_life_of_a_slot(width, identity, msi):
    """Bind, attention button, surprise removal, link down and up: the driver is always in step."""
    host = Host(width, 2, random.Random(seed()), identity=identity)
    drivers = [PCIEHP(host, n) for n in range(2)]

    async def main(ctx):
        host.slots(ctx, 0, 0)
        await host.start(ctx)
        for d in drivers:
            if msi:
                await host.set_msi(ctx, d.port, 0x1_FEE0_0000 + 16 * d.port, 0x40 + d.port)
            await d.probe(ctx)
        await irq(ctx, host, drivers)  # what the probe itself was told
        host.msis.clear()
        host.messages.clear()

        async def expect(*log):
            before = len(host.interrupts)
            await irq(ctx, host, drivers)
            assert len(host.interrupts) > before
            assert drivers[1].log == list(log)
            drivers[1].log.clear()
            control = ctx.get(host.dut.slot_control[1])
            assert control.power_indicator == (1 if drivers[1].on else 3)
            assert (await host.read(ctx, 1, SLOT)) >> 16 & 0x119 == 0

        # Managed unbind: the button, then the power indicator goes off, then the GPU goes.
        host.bind(ctx, 1)
        await expect("on")
        await host.press(ctx, 2)
        await expect("button", "off")
        host.unbind(ctx, 1)
        await expect()
        assert not drivers[1].on
        # On line by the button, after the driver took the slot off line.
        host.bind(ctx, 1)
        await expect("on")
        await host.press(ctx, 2)
        await expect("button", "off")
        await host.press(ctx, 2)
        await expect("button", "on")
        # Link down and up; then the GPU is torn out.
        host.slots(ctx, link=0)
        await expect("off")
        host.slots(ctx, link=2)
        await expect("on")
        host.unbind(ctx, 1)
        await expect("off")
        # Another GPU takes its place before anyone has looked.
        host.bind(ctx, 1)
        await expect("on")
        host.unbind(ctx, 1)
        await ctx.tick().repeat(3)
        host.bind(ctx, 1)
        await expect("off", "on")
        assert drivers[0].log == []
        assert bool(host.messages) != msi and not host.msis
        assert (drivers[1].commands > 10) == (identity is FULL)

    host.simulate(main)


def test_bind_is_one_step():
    """No read sees presence without its event, nor without the event of the link."""
    host = Host(64, 1, random.Random(seed()))
    seen = set()

    async def main(ctx):
        host.slots(ctx, 0, 0)
        await host.start(ctx)
        for delay in range(1, 20):
            await host.write(ctx, 0, SLOT, 0x119 << 16, 0b1100)
            before = len(host.completions)
            await host.send(ctx, host.tlp(0, SLOT))
            await ctx.tick().repeat(delay)
            host.bind(ctx, 0)
            status = int.from_bytes((await host.completion(ctx, before)).payload, "little") >> 16
            assert status in (0, 0x148)
            seen.add(status)
            assert await host.read(ctx, 0, SLOT) >> 16 == 0x148
            assert await host.read(ctx, 0, LINK) >> 16 == 0x3103
            host.unbind(ctx, 0)
            await ctx.tick().repeat(3)

    host.simulate(main)
    assert seen == {0, 0x148}


def test_no_event_is_lost_to_a_clear():
    """The button is pressed in each cycle of the write that clears it."""
    host = Host(64, 1, random.Random(seed()))
    after = []

    async def main(ctx):
        await host.start(ctx)
        await host.set_msi(ctx, 0, 0xFEE0_0000, 0x41)
        for delay in range(1, 20):
            await host.press(ctx, 1)
            await host.write(ctx, 0, SLOT, 0x21, 0b0011)
            before, msis = len(host.completions), len(host.msis)
            await host.send(ctx, host.tlp(0, SLOT, 1 << 16, 0b1100))
            await ctx.tick().repeat(delay)
            await host.press(ctx, 1)
            await host.completion(ctx, before)
            await ctx.tick().repeat(30)
            status = await host.read(ctx, 0, SLOT) >> 16 & 1
            after.append(status)
            # The one of the first event came with its enable; another one if something is left.
            assert host.msis[msis:] == [(0xFEE0_0000, 0x41)] * (len(host.msis) - msis)
            if status:
                assert len(host.msis) > msis
            await host.write(ctx, 0, SLOT, 1 << 16)

    host.simulate(main)
    # Before the clear took effect the two were one event; from then on the second one stays.
    assert after == sorted(after) and after[0] == 0 and after[-1] == 1


def test_slot_registers():
    """Capabilities and controls follow the options; the controls are seen by the hardware."""
    for identity, caps, mask in ((None, 0x0004_7971, 0x1329), (FULL, 0x0000_795B, 0x17F9)):
        host = Host(64, 2, random.Random(seed()), identity=identity)

        async def main(ctx, host=host, identity=identity, caps=caps, mask=mask):
            await host.start(ctx)
            for port in range(2):
                assert await host.read(ctx, port, SLOT - 1) == caps | (port + 1) << 19
                await host.write(ctx, port, SLOT, 0xFFFF_FFFF)
                assert await host.read(ctx, port, SLOT) & 0xFFFF == mask
            await host.write(ctx, 1, SLOT, 0x0240)
            one = ctx.get(host.dut.slot_control[1])
            assert one.power_indicator == 2 and one.power_off == 0 and not one.interrupt
            assert one.attention_indicator == (1 if identity else 3)
            assert await host.read(ctx, 0, 0x3C // 4) & 0xFFFF == 0x0100
            # Power off is the end of the link.
            host.slots(ctx, 3, 3)
            await host.write(ctx, 0, SLOT, 0)
            await host.write(ctx, 1, SLOT, 0x0400)
            assert ctx.get(host.dut.link_active) == (1 if identity else 3)
            await host.write(ctx, 1, SLOT, 0)
            assert ctx.get(host.dut.link_active) == 3

        host.simulate(main)


def test_retraining_a_link():
    """7.5.3.7, 7.5.3.8, 7.5.3.19: literals of the registers, step by step."""
    host = Host(64, 2, random.Random(seed()))
    retrain, disable, status = 0x20, 0x10, 1 << 30

    async def main(ctx):
        async def link():
            assert await host.read(ctx, 0, LINK) >> 16 == 0x1000  # the other port
            return await host.read(ctx, 1, LINK) >> 16

        host.slots(ctx, 0, 0)
        await host.start(ctx)
        # Without a link there is nothing to train.
        await host.write(ctx, 1, LINK, retrain, 3)
        assert await link() == 0x1000
        host.bind(ctx, 1)
        assert await link() == 0x3103 and await host.read(ctx, 1, LINK2) == 0x001E_0003
        # A new target is in effect when the link is retrained, which keeps it active.
        await host.write(ctx, 1, LINK2, 1)
        assert await link() == 0x3103
        await host.write(ctx, 1, LINK, retrain, 3)
        assert await link() == 0x7101
        assert await host.read(ctx, 1, LINK) & 0xFFFF == 0, "Retrain Link reads 0"
        assert await host.read(ctx, 1, LINK2) == 0x001E_0001, "it was equalized once"
        assert await host.read(ctx, 1, SLOT) >> 16 == 0x148, "no event of the slot but of before"
        await host.write(ctx, 1, LINK, 0)
        assert await link() == 0x7101, "zeros clear nothing"
        await host.write(ctx, 1, LINK, status)
        assert await link() == 0x3101
        # The status is set by the retraining of the write that clears it.
        await host.write(ctx, 1, LINK, status | retrain)
        assert await link() == 0x7101
        await host.write(ctx, 1, LINK, status)
        # Nothing is retrained by a write of other bytes, or one that takes the link away.
        await host.write(ctx, 1, LINK, retrain, 0b1110)
        assert await link() == 0x3101
        await host.write(ctx, 1, LINK, retrain | disable, 3)
        assert await link() == 0x1000
        # A link that comes up has the target, too; below 8.0 GT/s nothing was equalized.
        await host.write(ctx, 1, LINK2, 2)
        await host.write(ctx, 1, LINK, 0, 3)
        assert await link() == 0x3102 and await host.read(ctx, 1, LINK2) == 2
        for target, speed in ((0, 1), (3, 3), (15, 3)):
            await host.write(ctx, 1, LINK2, target)
            await host.write(ctx, 1, LINK, status | retrain)
            assert await link() == 0x7100 | speed
        assert not host.msis and not host.messages

    host.simulate(main)


def test_an_event_in_d3hot_wakes_the_port_up():
    """6.7.3.4: an enabled event, D3hot and PME Enable, whatever Hot-Plug Interrupt Enable is."""
    host = Host(64, 2, random.Random(seed()))
    enabled, status, d3hot, enable = 1 << 3, 1 << 15, 3, 1 << 8  # Presence Detect Changed Enable
    # PM_PME: to the root complex, of 02:01.0.
    message = bytes.fromhex("30000000 02080018 00000000 00000000")

    async def main(ctx):
        async def pulled(count, pmcsr):
            """The card goes; that many messages in all, and what PMCSR says then."""
            host.unbind(ctx, 1)
            await ctx.tick().repeat(40)
            assert host.wakes == [message] * count
            assert await host.read(ctx, 1, PMCSR) == pmcsr | 0x8  # No Soft Reset
            assert await host.read(ctx, 0, PMCSR) == 0x8

        async def again(pm, control=enabled, clear=True):
            await host.write(ctx, 1, PMCSR, 0, 3)  # D0, in which nothing wakes it
            host.bind(ctx, 1)
            await ctx.tick().repeat(5)
            if clear:
                await host.write(ctx, 1, SLOT, 0x0119 << 16, 0b1100)
            await host.write(ctx, 1, SLOT, control, 0b0011)
            await host.write(ctx, 1, PMCSR, pm | status, 3)

        host.slots(ctx, 0, 0)
        await host.start(ctx)
        await again(d3hot | enable)
        await pulled(1, status | enable | d3hot)
        # Told once; what happens meanwhile is no other message.
        host.bind(ctx, 1)
        await pulled(1, status | enable | d3hot)
        await host.write(ctx, 1, PMCSR, d3hot | enable | status, 3)
        assert await host.read(ctx, 1, PMCSR) == d3hot | enable | 0x8
        await again(d3hot | enable)
        await pulled(2, status | enable | d3hot)
        # Not without any of the conditions, nor for an event whose bit is set already.
        await again(enable)
        await pulled(2, enable)
        await again(d3hot)
        await pulled(2, d3hot)
        await again(d3hot | enable, control=1 << 0 | 1 << 12)
        host.slots(ctx, present=2, link=0)
        await host.write(ctx, 1, SLOT, 0x0119 << 16, 0b1100)
        await host.write(ctx, 1, PMCSR, d3hot | enable | status, 3)
        seen = len(host.wakes)
        host.slots(ctx, present=0, link=0)  # an event of presence alone, which is not enabled
        await ctx.tick().repeat(40)
        assert len(host.wakes) == seen and await host.read(ctx, 1, PMCSR) == d3hot | enable | 0x8
        host.wakes[:] = [message] * 2
        await again(d3hot | enable, clear=False)
        await pulled(2, enable | d3hot)
        assert not host.msis and not host.messages

    host.simulate(main)


def test_a_wake_up_is_told_again():
    """5.3.3.3: after 100 to 150 ms, while PME Status and PME Enable are set; ticks are 50 ms."""
    dut, told = WakeUp(3, interval=100), []
    waits = []

    async def watch(ctx):
        cycle = 0
        async for *_, valid, requester in ctx.tick().sample(dut.o.valid & dut.o.ready,
                                                            dut.o.p.requester_id):
            cycle += 1
            if valid:
                told.append((cycle, requester))

    async def process(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.bus, 2)
        for phase in range(0, 100, 9):
            await ctx.tick().repeat(100 + phase)
            ctx.set(dut.enable, 0b110)
            ctx.set(dut.wakes, 0b011)  # one of them may not
            await ctx.tick()
            ctx.set(dut.wakes, 0)
            await ctx.tick().repeat(1000)
            assert ctx.get(dut.status) == 0b010
            cycles = [cycle for cycle, requester in told]
            assert {requester for _, requester in told} == {0x0208}
            waits.extend(b - a for a, b in zip(cycles, cycles[1:], strict=False))
            ctx.set(dut.clear, 0b010)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            await ctx.tick().repeat(3)
            told.clear()
            await ctx.tick().repeat(400)
            assert not told and ctx.get(dut.status) == 0

    simulate(dut, process, background=[watch, check_stream(dut.o)])
    assert min(waits) >= 200 and max(waits) <= 300 and len(waits) > 20


@pytest.mark.parametrize("msi", [True, False])
def test_link_bandwidth_interrupt(msi):
    """Link Bandwidth Management Status asks for an interrupt, if enabled, each time it is set."""
    host = Host(64, 1, random.Random(seed()))
    interrupt = 1 << 10

    async def main(ctx):
        async def expect(assertions):
            await ctx.tick().repeat(60)
            assert (len(host.msis), host.messages) == (
                (assertions, []) if msi else (0, ([0x20, 0x24] * assertions)[:asked]))

        asked = 0
        host.slots(ctx, 1, 1)
        await host.start(ctx)
        if msi:
            await host.set_msi(ctx, 0, 0xFEE0_0000, 0x41)
        await host.write(ctx, 0, LINK, 0x20, 3)  # not enabled
        await expect(0)
        await host.write(ctx, 0, LINK, interrupt, 3)
        asked = 1
        await expect(1)
        assert await host.read(ctx, 0, 1) >> 19 & 1 == (not msi), "Interrupt Status"
        await host.write(ctx, 0, LINK, interrupt | 0x20, 3)  # still set: no edge
        await expect(1)
        for n in range(2, 5):
            await host.write(ctx, 0, LINK, 1 << 30, 0b1100)
            asked = 2 * n - 2
            await expect(n - 1)
            await host.write(ctx, 0, LINK, interrupt | 0x20, 3)
            asked = 2 * n - 1
            await expect(n)

    host.simulate(main)


class Golden(GoldenSwitch):
    """Keeps what each single step sends upstream."""

    def step(self, raw=None):
        """The completion that ``raw`` gets, the messages and the MSIs that follow."""
        answers = self.from_upstream(raw) if raw else []
        assert all(side == UP for side, _ in answers)
        return [raw for _, raw in answers], *self.interrupts()


def random_write(rng, host):
    """A write to one of the registers that matter; mostly so that interrupts are possible."""
    port = rng.randrange(host.ports)
    often = rng.random() < 0.93
    kind = rng.randrange(18) - 4
    if kind < 4:
        return host.tlp(port, SLOT, rng.choice([0x0119_1129, rng.getrandbits(32) & 0x0119_FFFF]),
                        rng.choice([0b1100] * 6 + [15, rng.randrange(16)]))
    if kind < 6:
        return host.tlp(port, SLOT, rng.getrandbits(32) & 0xFFFF_FBFF | 0x1129 * often, 0b0011)
    if kind == 6:
        return host.tlp(port, COMMAND, 6 if often else rng.choice([0, 2, 4, 0x404]), 3)
    if kind == 7:
        return host.tlp(port, MSI, rng.getrandbits(1) << 16)
    if kind == 8:
        return host.tlp(port, MSI + rng.randrange(1, 4),
                        rng.choice([0, rng.getrandbits(16), rng.getrandbits(32)]))
    if kind == 9:
        return host.tlp(port, PMCSR, (0 if often and rng.random() < 0.7 else 3)
                        | (rng.getrandbits(2) & 1) << 8 | rng.getrandbits(1) << 15)
    if kind == 10:
        return host.tlp(port, LINK, 0 if often else 0x10, 3)
    if kind == 11:  # Retrain Link, its interrupt, its status
        return rng.choice([
            host.tlp(port, LINK, rng.choice([0x20, 0x420, 0x420, 0x400]) | 0x10 * (not often), 3),
            host.tlp(port, LINK, 1 << 30, 0b1100), host.tlp(port, LINK, 1 << 30 | 0x420)])
    if kind == 12:
        return host.tlp(port, LINK2, rng.choice([1, 2, 3, rng.randrange(16)]))
    return rng.choice([
        host.tlp(None, COMMAND, 6 if often else 0, 3), host.tlp(None, PMCSR, 0 if often else 3),
        host.tlp(port, 0x3C // 4, 0 if often else 1 << 22, 0b1100),
        host.tlp(None, 0x3C // 4, 0 if rng.random() < 0.9 else 1 << 22, 0b1100)])


@pytest.mark.parametrize(("width", "ports", "identity", "steps"), [
    (64, 3, FULL, 140), (32, 1, None, 100),
    *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 8, FULL, 1000), (32, 5, None, 1000), (512, 32, FULL, 400)))])
def test_random_steps(width, ports, identity, steps):
    """Events, clears, enables, resets, power states in any order: as the golden switch says."""
    rng = random.Random(seed() * 1000 + width + ports)
    host = Host(width, ports, rng, density=0.8, identity=identity)
    golden = Golden(ports, switch_maps(identity), identity)
    kinds = {"msi": 0, "messages": 0, "reads": 0}

    async def main(ctx):
        host.slots(ctx, 0, 0)
        golden.link_up = [False] * ports
        await ctx.tick().repeat(3)

        async def step(raw=None, settle=25):
            before = len(host.arrived)
            answers, messages, msis = golden.step(raw)
            for answer in answers:
                assert (await host.request(ctx, raw)).pack() == answer
            for _ in range(10_000):
                if len(host.arrived) - before == len(answers) + len(messages) + len(msis):
                    break
                await ctx.tick()
            await ctx.tick().repeat(settle)
            got = [raw for raw in host.arrived[before:] if raw not in answers]
            assert sorted(got) == sorted(messages + msis)
            kinds["msi"] += len(msis)
            kinds["messages"] += len(messages)

        async def prepare(turn):
            for register, data in ((6, 0x00FF_0201), (COMMAND, 6), (0x3C // 4, 0), (PMCSR, 0)):
                await step(host.tlp(None, register, data), 128 * ports + 20)
            for port in range(ports):
                for register, data in ((COMMAND, 6), (PMCSR, 0), (MSI, (port + turn) % 2 << 16),
                                       (SLOT, 0x0119_1129)):
                    await step(host.tlp(port, register, data))

        for n in range(steps):
            if n % (steps // 4) == 0:
                await prepare(n // (steps // 4))
            what = rng.random()
            if what < 0.2:
                port = rng.randrange(ports)
                golden.press(port)
                await host.press(ctx, 1 << port)
                await step()
            elif what < 0.4:
                present, link = (rng.getrandbits(ports) | rng.getrandbits(ports) for _ in "01")
                golden.present = [bool(present >> n & 1) for n in range(ports)]
                golden.link_up = [bool(link >> n & 1) for n in range(ports)]
                host.slots(ctx, present, link)
                await step()
            elif what < 0.85:
                raw = random_write(rng, host)
                # A reset of all functions takes its time.
                await step(raw, 128 * ports + 20 if Tlp.unpack(raw).target_id == 0x100 else 25)
            else:
                kinds["reads"] += 1
                await step(host.tlp(rng.randrange(ports), rng.choice([SLOT, SLOT, LINK, LINK, LINK2,
                                                                COMMAND])),
                           settle=2)

    host.simulate(main, deadline=3_000_000)
    print(kinds, golden.counts["interrupt"])
    assert golden.counts["interrupt"] == host.counts["interrupt"]
    # Of many ports there is always one that holds the wire.
    assert min(kinds.values()) > steps // (40 if ports < 32 else 80)


@pytest.mark.parametrize(("msi", "rounds"), [
    (True, 1), *(pytest.param(msi, 20, marks=pytest.mark.long) for msi in (True, False))])
def test_a_driver_misses_nothing_in_a_storm(msi, rounds):
    """Events at any time, while the driver works: when it is over, it knows the state."""
    rng = random.Random(seed())
    host = Host(64, 3, rng, density=0.7, identity=FULL)
    drivers = [PCIEHP(host, n) for n in range(3)]

    storm = [False]

    async def weather(ctx):
        while True:
            await ctx.tick().repeat(rng.choice([1, 1, 2, 5, 20, 100, 400]))
            if storm[0] and rng.random() < 0.2:
                await host.press(ctx, rng.getrandbits(3))
            elif storm[0]:
                host.slots(ctx, rng.getrandbits(3), rng.getrandbits(3) | rng.getrandbits(3))

    async def main(ctx):
        await host.start(ctx)
        for d in drivers:
            if msi:
                await host.set_msi(ctx, d.port, 0x1_FEE0_0000 + 16 * d.port, 0x40 + d.port)
            await d.probe(ctx)
        for n in range(1, rounds + 1):
            storm[0] = True
            for _ in range(6):
                await irq(ctx, host, drivers, cycles=50)
            while not all(len(d.log) > n for d in drivers):  # no slot without weather
                await irq(ctx, host, drivers, cycles=50)
            storm[0] = False
            await ctx.tick().repeat(401)
            await irq(ctx, host, drivers)
            for d in drivers:
                assert await host.read(ctx, d.port, SLOT) >> 16 & 0x119 == 0

    host.simulate(main, background=[weather], deadline=100_000 * (1 + rounds))
    print([len(d.log) for d in drivers])
    assert all(len(d.log) > rounds for d in drivers)


@pytest.mark.parametrize(("width", "rounds"), [
    (64, 32), *(pytest.param(w, 200, marks=pytest.mark.long) for w in (32, 64, 128, 512))])
def test_nothing_after_the_write_that_forbids_it(width, rounds):
    """No MSI after the completion of a write that ends bus mastering, MSI or D0, nor a message."""
    rng = random.Random(seed() + width)
    host = Host(width, 2, rng, density=0.15)
    early, late = [], []

    async def main(ctx):
        await host.start(ctx)
        for port in range(2):
            await host.set_msi(ctx, port, 0xFEE0_0000, port)
            await host.write(ctx, port, SLOT, 0x21)
            await host.write(ctx, port, COMMAND, 0x0406)
        for n in range(rounds):
            host.msis.clear()
            where, register, off, on = rng.choice([
                (0, COMMAND, 0x0400, 0x0406), (0, MSI, 0, 1 << 16), (0, PMCSR, 3, 0),
                *[(None, COMMAND, 0, 6)] * 3])
            before = len(host.completions)
            # From long before the write takes effect to after it.
            delay = n * 7 % 32 - 20
            if delay < 0:
                await host.press(ctx, 3)
                await ctx.tick().repeat(-delay)
            await host.send(ctx, host.tlp(where, register, off))
            if delay >= 0:
                await ctx.tick().repeat(delay + 1)
                await host.press(ctx, 3)
            await host.completion(ctx, before)
            early.extend(host.msis)
            at = len(host.msis)
            await ctx.tick().repeat(60)
            assert not [1 for _, port in host.msis[at:] if where in (None, port)], "forbidden"
            # What was held back comes when it is allowed, unless it came before.
            at = len(host.msis)
            await host.write(ctx, where, register, on)
            await ctx.tick().repeat(60)
            for _ in range(600):  # two of up to five beats each, of which few are taken
                if {port for _, port in host.msis} == {0, 1}:
                    break
                await ctx.tick()
            late.extend(host.msis[at:])
            # Another one may come for an event that goes on after a pause of the condition.
            assert {port for _, port in host.msis} == {0, 1}
            for port in range(2):
                await host.write(ctx, port, SLOT, 1 << 16, 0b1100)
        assert not host.messages

    host.simulate(main, deadline=400_000)
    assert len(early) > rounds // 6 and len(late) > rounds // 6
