"""Surprise Down and Downstream Port Containment, against the golden switch and by hand.

Ref: PCIe Base 5.0, 2.9.3, 3.2.1, 6.2.10, 7.9.15
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from dxpu.switch import Identity
from dxpu.switch.config.identity import SlotOptions
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp
from dxpu_sim.switch.golden import golden_function
from tests.hdl.switch.errors.test_errors import (
    BRIDGE, COMMAND, COR, COR_MASK, COR_STATUS, DEVICE, FATAL, MASK, NONFATAL, REGISTERS, SEVERITY,
    STATUS, WINDOW, Bench, completion, message, random_error_setup,
)
from tests.hdl.switch.hotplug.test_hotplug import irq
from tests.hdl.switch.test_routing import random_configuration
from tests.hdl.switch.test_switch import enumerate_tree, memory_tlp
from tests.support.hotplug_bench import LINK, MSI, PCIEHP, SLOT, Host
from tests.support.switch_bench import config_tlp, info_of, random_traffic
from tests.support.testbench import Packet, drive_packets, seed
from tests.support.widths import some_widths

IDENTITY = Identity(slot=SlotOptions(surprise=False, dpc=True))
#: Dwords: DPC Capability and Control; DPC Status and Error Source ID.
CONTROL, CONTAINED = 0x174 // 4, 0x178 // 4
SURPRISE = 1 << 5
UR, CA = 1, 4
MSI_ADDRESS = 0xFEE0_0000


class DpcBench(Bench):
    """Compares containment as well; collects MSIs of the ports."""

    registers = (*REGISTERS, CONTROL, CONTAINED)
    patience = 400

    def __init__(self, width, ports, rng, *, identity=IDENTITY, **options):
        super().__init__(width, ports, rng, identity=identity, **options)
        self.msis, self.due_msis = [], []
        self.order = []  # kinds of what the switch itself sends

    def tell(self):
        messages, msis = self.golden.interrupts()
        self.to_tell += messages
        self.due_msis += msis

    def _told(self, packet):
        tlp = Tlp.unpack(packet.data)
        if tlp.kind == "MWr32" and tlp.address & ~0xFF == MSI_ADDRESS:
            self.msis.append(packet.data)
            self.interrupts += 1
            self.order.append("MSI")
            return True
        if super()._told(packet):
            self.order.append(tlp.message_code)
            return True
        return False

    async def settled(self, ctx):
        await super().settled(ctx)
        for _ in range(400):
            if set(self.msis) == set(self.due_msis):
                break
            await ctx.tick()

    async def step(self, ctx, from_up=(), from_slots=()):
        told, out = await super().step(ctx, from_up, from_slots)
        # Two causes at a time may be one message.
        assert set(self.msis) == set(self.due_msis) and not (
            Counter(self.msis) - Counter(self.due_msis))
        self.order, order = [], self.order
        self.last_order = order
        self.msis, self.due_msis, got = [], [], self.msis
        self.last_msis = got
        assert ctx.get(self.dut.link_active) == sum(
            self.golden.link_active(n) << n for n in range(self.ports))
        return told, out

    def control(self, n, value):
        """A write to DPC Control of function ``n``."""
        return self.write(n, CONTROL, value << 16, 12)

    async def free(self, ctx, n):
        """Software clears what was logged, and Trigger Status."""
        await self.clear(ctx)
        await self.step(ctx, [self.write(n, CONTAINED, 0xFFFF, 3)])

    def contained(self, n):
        """Trigger Status, Reason, extension and Error Source ID of function ``n``."""
        value = self.values[n, CONTAINED]
        return value & 1, value >> 1 & 3, value >> 5 & 3, value >> 16

    async def lose(self, ctx, mask=0, *, link=None):
        """Slots outside ``mask`` lose their GPU, or their link only."""
        if link is not None:
            ctx.set(self.dut.link_up, link)
            self.golden.link_up = [bool(link >> n & 1) for n in range(self.ports)]
        else:
            self.present(ctx, mask)
        return await self.step(ctx)


async def start(bench, ctx):
    """A tree of ports with GPUs; all reporting on, no containment."""
    await enumerate_tree(bench, ctx)
    bench.present(ctx, (1 << bench.ports) - 1)
    await bench.clear(ctx)
    await bench.step(ctx, [bench.write(n, register, data, enables)
                           for n in range(bench.ports + 1) for register, data, enables in (
                               (COMMAND, 0x147, 3), (DEVICE, 0xF, 3), (COR_MASK, 0, 15),
                               (BRIDGE, 3 << 16, 12))])


def test_registers():
    """The capability is where software looks for it; without the parameter nothing is there."""
    plain, fmap = function_map(DOWNSTREAM), function_map(DOWNSTREAM, IDENTITY)
    at = 0x100
    found = {}
    while at:
        header = golden_function(0, IDENTITY).read(at // 4)
        found[header & 0xFFFF] = at
        assert header >> 16 & 0xF == (2 if at == 0x100 else 1)
        at = header >> 20
    assert found == {1: 0x100, 3: 0x150, 0xD: 0x160, 0x1D: 0x170, 0x19: 0x200}
    caps, control = fmap.reset_image()[CONTROL] & 0xFFFF, fmap.access_image("RW")[CONTROL]
    assert caps == 0x80  # no RP extensions, software trigger, message number 0
    assert control == 0x1F << 16
    assert fmap.access_image("RW1C")[CONTAINED] == 0b1001
    assert [n for n in range(128) if plain.reset_image()[n] != fmap.reset_image()[n]
            ] == [0x6C // 4, 0x74 // 4, 0x160 // 4, 0x170 // 4, 0x174 // 4]
    assert fmap.reset_image()[0x6C // 4] ^ plain.reset_image()[0x6C // 4] == 1 << 19
    assert plain.reset_image()[0x74 // 4] ^ fmap.reset_image()[0x74 // 4] == 1 << 5
    assert function_map(UPSTREAM).reset_image() == function_map(UPSTREAM, IDENTITY).reset_image()
    with pytest.raises(ValueError, match="surprise must be False with dpc, not True"):
        SlotOptions(dpc=True)


def test_triggers_by_hand():
    """What contains a port, with which enables; reason, source, and what is not sent then."""
    bench = DpcBench(64, 2, random.Random(seed()))
    posted = memory_tlp(WINDOW, write=True, requester=0x300)     # its own window: UR
    advisory = memory_tlp(WINDOW, requester=0x300)
    unclaimed = 1 << 20
    cases = (
        # Trigger Enable, fatal errors, masked, from slot 0; reason, source
        (1, 0, 0, message(FATAL, 0, 0x0300), 2, 0x0300),
        (2, 0, 0, message(FATAL, 0, 0x0302), 2, 0x0302),
        (2, 0, 0, message(NONFATAL, 0, 0x0301), 1, 0x0301),
        (1, 0, 0, message(NONFATAL, 0, 0x0300), None, None),
        (0, 0, 0, message(FATAL, 0, 0x0300), None, None),
        (3, 0, 0, message(FATAL, 0, 0x0300), None, None),        # reserved
        (2, 0, 0, message(COR, 0, 0x0300), None, None),
        (2, 0, 0, message(FATAL, 0, 0x0900), 2, 0x0900),         # not its bus: nobody asks
        (2, 0, 0, posted, 0, 0), (1, 0, 0, posted, None, None),
        (1, unclaimed, 0, posted, 0, 0), (2, 0, unclaimed, posted, None, None),
        (2, 0, 0, advisory, None, None), (1, unclaimed, 0, advisory, 0, 0))

    async def main(ctx):
        await start(bench, ctx)
        for enable, fatal, masked, raw, reason, source in cases:
            await bench.step(ctx, [bench.control(1, enable), bench.write(1, SEVERITY, fatal),
                                   bench.write(1, MASK, masked)])
            lives = ctx.get(bench.dut.lives[0]), ctx.get(bench.dut.lives[1])
            told, out = await bench.step(ctx, [], [(0, raw)])
            is_message = Tlp.unpack(raw).kind == "Msg"
            if reason is None:
                assert bench.contained(1)[0] == 0 and ctx.get(bench.dut.link_active) == 3
                assert (UP, raw) in out if is_message else told or masked
                await bench.clear(ctx)
                continue
            assert bench.contained(1) == (1, reason, 0, source)
            assert told == [] and (UP, raw) not in out, "not signalled as well"
            assert ctx.get(bench.dut.link_active) == 2 and ctx.get(bench.dut.slot_off) == 1
            assert ctx.get(bench.dut.lives[0]) == lives[0] + 1
            assert ctx.get(bench.dut.lives[1]) == lives[1]
            assert bool(bench.values[1, 7] >> 30 & 1) == is_message  # Received System Error
            assert not bench.values[0, COMMAND] >> 30 & 1            # Signaled System Error
            # Neither does software trigger again, nor anything come from the slot.
            await bench.step(ctx, [bench.control(1, enable | 0x40)])
            assert bench.contained(1) == (1, reason, 0, source)
            before = bench.golden.counts["fenced"]
            assert await bench.step(ctx, [], [(0, message(FATAL, 0, 0x333))]) == ([], [])
            assert bench.golden.counts["fenced"] == before + 1
            assert bench.contained(1) == (1, reason, 0, source)
            await bench.free(ctx, 1)
            assert ctx.get(bench.dut.link_active) == 3
            assert (await bench.step(ctx, [memory_tlp(WINDOW)]))[1] == [(0, memory_tlp(WINDOW))]

    bench.simulate(main, deadline=800_000)


def test_software_trigger():
    """Acts at once, if enabled by the same write or before; reads 0; not while contained."""
    bench = DpcBench(64, 2, random.Random(seed()))
    read = memory_tlp(WINDOW)

    async def main(ctx):
        await start(bench, ctx)
        for enable in (0, 3):
            await bench.step(ctx, [bench.control(1, 0x40 | enable)])
            assert bench.contained(1)[0] == 0
        await bench.step(ctx, [bench.control(1, 1)])
        await bench.step(ctx, [bench.write(1, CONTROL, 0x41 << 16, 0b1000)])  # another byte
        await bench.step(ctx, [bench.control(1, 0x40)])  # turns it off
        assert bench.contained(1)[0] == 0
        for control in (0x41, 0x42):
            told, out = await bench.step(ctx, [bench.control(1, control), read])
            assert told == [] and [Tlp.unpack(raw).status for _, raw in out] == [0, CA]
            assert bench.contained(1) == (1, 3, 1, 0)
            assert bench.values[1, CONTROL] >> 16 == control & 0x3F
            await bench.step(ctx, [bench.control(1, control)])
            # The other port is not concerned.
            other = memory_tlp(WINDOW + (1 << 32))
            assert (await bench.step(ctx, [other]))[1] == [(1, other)]
            await bench.step(ctx, [bench.write(1, CONTAINED, 0x1, 1)])
            assert bench.contained(1)[0] == 0 and ctx.get(bench.dut.link_active) == 3

    bench.simulate(main)


def test_a_message_of_an_earlier_life():
    """It was committed while the link was there, and comes late: discarded, contains nothing."""
    bench = DpcBench(64, 1, random.Random(seed()))
    raw = message(FATAL, 0, 0x300)

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.control(1, 1)])
        for old in (1, 0):
            ctx.set(bench.dut.old, old)
            bench._jobs = {"down_i": drive_packets(bench.dut.downstream_i, [
                Packet(raw, {"port": 0, "info": info_of(raw), "due": 1})], rng=bench.rng)}
            await ctx.tick().repeat(150)
            await bench.fetch(ctx, 1, CONTAINED)
            assert ctx.get(bench.dut.link_active) == old and bench.contained(1)[0] == 1 - old
            assert not bench.got["up_o"]

    bench.simulate(main)


def test_the_first_message_counts():
    """Several at once: the first one says why, once; none leaves."""
    bench = DpcBench(64, 1, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.control(1, 0x12)])
        raws = [message(code, 0, 0x300 + n) for n, code in enumerate((NONFATAL, FATAL, FATAL))]
        bench._jobs = {"down_i": drive_packets(bench.dut.downstream_i, [
            Packet(raw, {"port": 0, "info": info_of(raw), "due": 1}) for raw in raws])}
        await ctx.tick().repeat(400)
        await bench.fetch(ctx, 1, CONTAINED)
        assert bench.contained(1) == (1, 1, 0, 0x300)
        assert [Tlp.unpack(raw).message_code for raw in bench.told] == [COR]  # of the port
        assert not [p for p in bench.got["up_o"] if Tlp.unpack(p.data).message_code != COR]
        bench.got["up_o"].clear()
        bench.totals.clear()
        bench.golden.counts.clear()

    bench.simulate(main)


@pytest.mark.parametrize("control", [1, 5])
def test_completions(control):
    """Contained: every request is answered as Completion Control says, posted ones are dropped."""
    bench = DpcBench(64, 2, random.Random(seed()))
    status = UR if control & 4 else CA
    down = (memory_tlp(WINDOW), config_tlp(0x300, 0, type1=True), memory_tlp(WINDOW, write=True),
            completion(0x300))

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.control(1, control)])
        # A link that software takes away: Unsupported Request whatever the control.
        await bench.step(ctx, [bench.write(1, LINK, 0x10, 1)])
        _, out = await bench.step(ctx, down)
        assert [Tlp.unpack(raw).status for _, raw in out] == [UR, UR]
        await bench.step(ctx, [bench.write(1, LINK, 0, 1)])
        told, _ = await bench.lose(ctx, 2)
        assert told == [] and bench.contained(1) == (1, 0, 0, 0)
        assert bench.values[1, STATUS] == SURPRISE and bench.values[1, DEVICE] >> 16 == 4
        before = dict(bench.golden.counts)
        _, out = await bench.step(ctx, down, [(1, memory_tlp(WINDOW, requester=0x400))])
        answers = [(side, Tlp.unpack(raw)) for side, raw in out]
        assert [(side, a.status, a.completer_id) for side, a in answers] == [
            (UP, status, 0x200), (UP, status, 0x200), (1, status, 0x200)]
        counts = bench.golden.counts
        assert counts["unsupported0"] == before.get("unsupported0", 0) + 2
        assert counts["unclaimed0"] == before.get("unclaimed0", 0) + 1
        # None of these is an error.
        assert bench.values[1, STATUS] == SURPRISE and bench.values[1, DEVICE] >> 16 == 4
        # The GPU comes back: not before software lets it; then as ever.
        bench.present(ctx, 3)
        await bench.step(ctx)
        assert ctx.get(bench.dut.link_active) == 2
        await bench.free(ctx, 1)
        assert ctx.get(bench.dut.link_active) == 3
        assert (await bench.step(ctx, [memory_tlp(WINDOW)]))[1] == [(0, memory_tlp(WINDOW))]
        bench.present(ctx, 2)

    bench.simulate(main)


def test_what_is_no_surprise():
    """Links that go with the knowledge of software, and those that do not."""
    full = Identity(slot=SlotOptions(surprise=False, dpc=True, power_controller=True))
    bench = DpcBench(64, 2, random.Random(seed()), identity=full)
    off = message(0x19, 3)  # PME_Turn_Off

    async def main(ctx):
        await start(bench, ctx)

        async def logged(expected):
            """Compare, clear, and give the slot its GPU again."""
            assert bench.values[1, STATUS] == (SURPRISE if expected else 0)
            assert not bench.contained(1)[0]
            bench.golden.orderly = [False] * 2
            ctx.set(bench.dut.orderly, 0)
            await bench.clear(ctx)
            await bench.lose(ctx, 3)
            await bench.lose(ctx, link=3)
            assert ctx.get(bench.dut.link_active) == 3

        # Not enabled to contain: the error is signalled.
        for why in ({"mask": 2}, {"link": 2}):
            told, _ = await bench.lose(ctx, **why)
            assert told == [(0x200, FATAL)]
            await logged(True)
        # Software closes the port, and the GPU goes then.
        for register, data, enables, back in ((LINK, 0x10, 1, 0), (BRIDGE, 0x42 << 16, 12, 2 << 16),
                                              (SLOT, 0x400, 3, 0)):
            await bench.step(ctx, [bench.write(1, register, data, enables)])
            assert ctx.get(bench.dut.link_active) == 2
            await bench.lose(ctx, 2)
            await bench.step(ctx, [bench.write(1, register, back, enables)])
            await logged(False)
        # By agreement.
        ctx.set(bench.dut.orderly, 1)
        bench.golden.orderly = [True, False]
        await bench.lose(ctx, 2)
        await logged(False)
        # After PME_Turn_Off, until the link is back.
        await bench.step(ctx, [off])
        await bench.step(ctx, [], [(0, message(0x1B, 5, 0x300)), (1, message(0x1B, 5, 0x400))])
        await bench.lose(ctx, 2)
        await logged(False)
        await bench.lose(ctx, 2)
        await logged(True)
        # The other slot was told as well, and still has its link.
        await bench.lose(ctx, 1)
        assert bench.values[2, STATUS] == 0
        bench.present(ctx, 3)
        # Contained, and then gone.
        await bench.step(ctx, [bench.control(1, 0x41)])
        await bench.lose(ctx, 2)
        await bench.step(ctx, [bench.write(1, CONTAINED, 1, 1)])
        await logged(False)
        # Reset from above; the links come back by themselves.
        await bench.step(ctx, [bench.write(0, BRIDGE, 0x42 << 16, 12)])
        await bench.step(ctx, [bench.write(0, BRIDGE, 2 << 16, 12)])
        await ctx.tick().repeat(500)
        for n in (1, 2):
            assert bench.values[n, STATUS] == 0

    bench.simulate(main, deadline=800_000)


def test_the_host_link_goes():
    """All functions are reset, and all links go: no Surprise Down; containment stays, as sticky."""
    bench = DpcBench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.control(1, 0x41), bench.control(2, 1)])
        assert bench.contained(1) == (1, 3, 1, 0)
        ctx.set(bench.dut.upstream_down, 1)
        await ctx.tick().repeat(5)
        ctx.set(bench.dut.present, 0)
        await ctx.tick().repeat(600)
        ctx.set(bench.dut.present, 3)
        await ctx.tick().repeat(5)
        ctx.set(bench.dut.upstream_down, 0)
        await ctx.tick().repeat(600)
        # Bus numbers are forgotten.
        bench.limits.clear()
        await bench.run(ctx, [bench.write(0, 6, 4 << 16 | 2 << 8 | 1)])
        for n in (1, 2):
            for register in (CONTAINED, CONTROL, STATUS):
                await bench.fetch(ctx, n, register)
        assert bench.contained(1) == (1, 3, 1, 0) and bench.contained(2)[0] == 0
        assert [bench.values[n, CONTROL] >> 16 for n in (1, 2)] == [0, 0]
        assert [bench.values[n, STATUS] for n in (1, 2)] == [0, 0]
        assert ctx.get(bench.dut.link_active) == 2
        bench.totals.clear()
        bench.golden.counts.clear()

    bench.simulate(main)


@pytest.mark.parametrize("msi", [True, pytest.param(False, marks=pytest.mark.long)])
def test_interrupts(msi):
    """One for each containment, on the edge; ERR_COR before it, and no error bit for that."""
    bench = DpcBench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        if msi:
            await bench.step(ctx, [bench.write(1, MSI + 1, MSI_ADDRESS),
                                   bench.write(1, MSI + 3, 0x31), bench.write(1, MSI, 1 << 16)])
        for control, cor, asks in ((0x01, 0, 0), (0x09, 0, 1), (0x11, 1, 0), (0x19, 1, 1)):
            await bench.step(ctx, [bench.control(1, control)])
            told, _ = await bench.step(ctx, [], [(0, message(FATAL, 0, 0x300))])
            assert [code for who, code in told if who == 0x200] == [COR] * cor
            sent = bench.last_order
            assert sent.count("MSI") == (asks and msi) and sent.count(0x20) == (asks and not msi)
            if asks and msi and cor:
                assert sent == [COR, "MSI"]
            assert bench.values[1, COR_STATUS] == 0 and bench.values[1, DEVICE] >> 16 == 0
            assert bench.values[1, CONTAINED] & 15 == 0b0101 | 8 * asks
            out = (await bench.step(ctx, [config_tlp(0x200, COMMAND, type1=True)]))[1]
            status = int.from_bytes(Tlp.unpack(out[-1][1]).payload, "little")
            assert bool(status >> 19 & 1) == (asks and not msi)  # Interrupt Status
            # Trigger Status alone: the interrupt stays asserted. Another one is no second edge.
            await bench.step(ctx, [bench.write(1, CONTAINED, 1, 1)])
            assert bench.last_order == [] and ctx.get(bench.dut.link_active) == 3
            await bench.step(ctx, [], [(0, message(FATAL, 0, 0x300))])
            assert bench.last_order == [COR] * cor
            await bench.step(ctx, [bench.write(1, CONTAINED, 8, 1)])
            assert bench.last_order == [0x24] * (asks and not msi)
            await bench.step(ctx, [bench.write(1, CONTAINED, 1, 1)])
            await bench.clear(ctx)
        # ERR_COR needs Correctable Error Reporting of the port, and the bridge above.
        for register, data, enables, back in ((DEVICE, 0xE, 3, 0xF), (BRIDGE, 0, 12, 3 << 16)):
            n = 1 if register == DEVICE else 0
            await bench.step(ctx, [bench.write(n, register, data, enables)])
            told, _ = await bench.step(ctx, [bench.control(1, 0x51)])
            assert told == [] and bench.contained(1)[0]
            await bench.step(ctx, [bench.write(n, register, back, enables),
                                   bench.write(1, CONTAINED, 1, 1)])

    bench.simulate(main, deadline=400_000)


@pytest.mark.parametrize("how", ["link", "masked", "message"])
def test_no_request_falls_between(how):
    """Reads around the moment of containment: forwarded before it, Completer Abort after; no UR.

    If Surprise Down is masked, only that, as nothing is contained.
    """
    bench = DpcBench(64, 1, random.Random(seed()))
    seen = Counter()

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.control(1, 1), bench.write(1, MASK, (how == "masked") << 5)])
        dut = bench.dut
        for delay in range(1, 40, 8):
            bench._jobs = {"up_i": send([memory_tlp(WINDOW, tag=n) for n in range(40)])}
            await ctx.tick().repeat(delay)
            if how != "message":
                ctx.set(dut.link_up, 0)
            else:
                bench.feed([(0, message(FATAL, 0, 0x300))])
                for _ in range(16):  # not after the log: no request more than those decided about
                    await ctx.tick()
                assert not ctx.get(dut.link_active)
            for _ in range(900):
                await ctx.tick()
                if len(bench.got["up_o"]) + len(bench.got["down_o"]) == 40:
                    break
            await ctx.tick().repeat(100)
            forwarded = len(bench.got["down_o"])
            statuses = [Tlp.unpack(p.data).status for p in bench.got["up_o"]]
            assert forwarded + len(statuses) == 40
            assert set(statuses) <= {UR if how == "masked" else CA}
            seen.update(forwarded=forwarded, aborted=len(statuses))
            for packets in bench.got.values():
                packets.clear()
            await bench.fetch(ctx, 1, CONTAINED)
            assert bench.contained(1)[0] == (how != "masked") and ctx.get(dut.link_active) == 0
            ctx.set(dut.link_up, 1)
            bench._jobs = {"up_i": send([bench.write(1, CONTAINED, 9, 1)])}
            while not bench.got["up_o"]:
                await ctx.tick()
            await ctx.tick().repeat(30)
            assert ctx.get(dut.link_active) == 1
            bench.got["up_o"].clear()
            bench.limits.clear()
        bench.totals.clear()
        bench.golden.counts.clear()

    def send(raws):
        return drive_packets(bench.dut.upstream_i, [Packet(raw, info_of(raw)) for raw in raws],
                             rng=bench.rng, density=1.0)

    bench.simulate(main)
    print(seen)
    assert seen["forwarded"] > 20 and seen["aborted"] > 60


@pytest.mark.parametrize("how", ["error", "message", "answered"])
@pytest.mark.parametrize("width", some_widths(64, of=(64, 512)))
def test_no_later_tlp_of_the_port_passes(how, width):
    """TLPs right behind the one that triggers, committed before the link goes: none leaves."""
    bench = DpcBench(width, 2, random.Random(seed()))
    bad = {"error": memory_tlp(WINDOW, write=True, requester=0x300),
           "answered": memory_tlp(WINDOW, requester=0x300),
           "message": message(FATAL, 0, 0x300)}[how]

    def good(n):
        return memory_tlp(0x1000, write=True, requester=0x300, tag=n, wide=False)

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.control(1, 2 if how == "error" else 1),
                               bench.write(1, SEVERITY, (how == "answered") << 20)])
        for gap in range(6):
            ctx.set(bench.dut.fixed, 1)
            ctx.set(bench.dut.life, ctx.get(bench.dut.lives[0]))
            raws = [good(1), *[message(COR, 0, 0x300)] * gap, bad, *(good(n) for n in range(2, 9))]
            bench._jobs = {"down_i": drive_packets(bench.dut.downstream_i, [
                Packet(raw, {"port": 0, "info": info_of(raw), "due": 1}) for raw in raws])}
            await ctx.tick().repeat(150)
            came = [p.data for p in bench.got["up_o"]]
            assert came == raws[:1 + gap]
            await bench.fetch(ctx, 1, CONTAINED)
            assert bench.contained(1)[0] == 1
            # The other slot, and later lives, are not concerned.
            ctx.set(bench.dut.fixed, 0)
            other = memory_tlp(0x1000, write=True, requester=0x400, wide=False)
            bench.got["up_o"].clear()
            bench.feed([(1, other)])
            await ctx.tick().repeat(60)
            assert [p.data for p in bench.got["up_o"]] == [other]
            bench.got["up_o"].clear()
            bench.got["down_o"].clear()
            bench._jobs = {"up_i": drive_packets(bench.dut.upstream_i, [
                Packet(raw, info_of(raw)) for raw in (
                    bench.write(1, STATUS, 0xFFFF_FFFF), bench.write(1, CONTAINED, 9, 1))])}
            await ctx.tick().repeat(150)
            assert ctx.get(bench.dut.link_active) == 3
            bench.got["up_o"].clear()
            bench.feed([(0, good(20))])
            await ctx.tick().repeat(60)
            assert [p.data for p in bench.got["up_o"]] == [good(20)]
            for packets in (*bench.got.values(), bench.limits, bench.told):
                packets.clear()
        bench.totals.clear()
        bench.golden.counts.clear()

    bench.simulate(main)


def test_a_malformed_tlp_cuts_off_at_once():
    """In the cycle after the pulse; not if it is masked, or of too little severity."""
    bench = DpcBench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        for control, severity, mask, expected in (
                (1, 1 << 18, 0, 1), (1, 0, 0, 0), (2, 0, 0, 1), (2, 0, 1 << 18, 0),
                (0, 1 << 18, 0, 0)):
            await bench.step(ctx, [bench.control(2, control), bench.write(2, SEVERITY, severity),
                                   bench.write(2, MASK, mask)])
            ctx.set(bench.dut.malformed_now, 2)
            await ctx.tick()
            ctx.set(bench.dut.malformed_now, 0)
            assert ctx.get(bench.dut.contained) == 2 * expected
            await ctx.tick().repeat(60)
            await bench.fetch(ctx, 2, CONTAINED)
            assert bench.contained(2) == (expected, 0, 0, 0)
            bench._jobs = {"up_i": drive_packets(bench.dut.upstream_i, [
                Packet(raw, info_of(raw)) for raw in (bench.write(2, CONTAINED, 9, 1),)])}
            await ctx.tick().repeat(60)
            for packets in (*bench.got.values(), bench.limits, bench.told):
                packets.clear()
        bench.totals.clear()
        bench.golden.counts.clear()

    bench.simulate(main)


@dataclass
class DPC:
    """A driver for the containment of one port, as Linux' dpc: the interrupt clears Interrupt
    Status; then why, the error cleared, link inactive, Trigger Status cleared, link waited for.
    """

    host: Host
    hotplug: PCIEHP
    log: list = field(default_factory=list)

    @property
    def port(self):
        return self.hotplug.port

    async def probe(self, ctx):
        """Fatal errors contain, with an interrupt."""
        control = await self.host.read(ctx, self.port, CONTROL) >> 16
        await self.host.write(ctx, self.port, CONTROL, (control & ~3 | 0b1001) << 16, 0b1100)

    async def serve(self, ctx):
        """The interrupt, which hot-plug shares."""
        status = await self.host.read(ctx, self.port, CONTAINED)
        if status & 8:
            await self.host.write(ctx, self.port, CONTAINED, 8, 0b0011)
            if status & 1:
                await self.recover(ctx)
        await self.hotplug.serve(ctx)

    async def recover(self, ctx):
        """Bring the port out of containment."""
        why = await self.host.read(ctx, self.port, CONTAINED)
        errors = await self.host.read(ctx, self.port, STATUS)
        await self.host.write(ctx, self.port, STATUS, errors)
        self.log.append((why >> 1 & 3, why >> 16, errors))
        for _ in range(5):
            if not await self.host.read(ctx, self.port, LINK) >> 29 & 1:
                break
        else:
            raise AssertionError("contained, with a link")
        await self.host.write(ctx, self.port, CONTAINED, 1, 0b0011)
        for _ in range(5):
            if await self.host.read(ctx, self.port, LINK) >> 29 & 1:
                break


@pytest.mark.parametrize("msi", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_driver_recovers_the_slot(msi):
    """Hot-plug and containment share an interrupt: links lost, GPUs pulled and replaced."""
    host = Host(64, 2, random.Random(seed()), identity=IDENTITY)
    drivers = [DPC(host, PCIEHP(host, n)) for n in range(2)]
    mine = drivers[1]

    async def main(ctx):
        host.slots(ctx, 0, 0)
        await host.start(ctx)
        for d in drivers:
            if msi:
                await host.set_msi(ctx, d.port, 0x1_FEE0_0000 + 16 * d.port, 0x40 + d.port)
            await d.hotplug.probe(ctx)
            await d.probe(ctx)
        host.msis.clear()
        host.messages.clear()

        async def expect(contained, *log):
            await irq(ctx, host, drivers)
            assert mine.log == [(0, 0, SURPRISE)] * contained
            assert mine.hotplug.log == list(log)
            mine.log.clear()
            mine.hotplug.log.clear()
            assert await host.read(ctx, 1, CONTAINED) & 0xFFFF == 0
            assert await host.read(ctx, 1, SLOT) >> 16 & 0x119 == 0

        host.bind(ctx, 1)
        await expect(0, "on")
        # The link goes; it comes back when the driver has long been done with it.
        host.slots(ctx, link=0)
        await expect(1, "off")
        host.slots(ctx, link=2)
        await expect(0, "on")
        # It is back at once: contained all the same.
        host.slots(ctx, link=0)
        await ctx.tick().repeat(2)
        host.slots(ctx, link=2)
        await ctx.tick().repeat(150)
        assert ctx.get(host.dut.link_active) == 0
        await expect(1, "off", "on")
        # Pulled; pulled and replaced before anyone has looked.
        host.unbind(ctx, 1)
        await expect(1, "off")
        host.bind(ctx, 1)
        await expect(0, "on")
        host.unbind(ctx, 1)
        await ctx.tick().repeat(3)
        host.bind(ctx, 1)
        await ctx.tick().repeat(150)
        assert await host.read(ctx, 1, SLOT) >> 16 & 0x40 and ctx.get(host.dut.link_active) == 0
        await expect(1, "off", "on")
        assert drivers[0].log == [] and drivers[0].hotplug.log == []

    host.simulate(main)


def random_step(rng, bench):
    """A write to a register of containment, of errors or of the link."""
    n = rng.randrange(bench.ports) + 1
    return rng.choice([
        lambda: bench.control(n, rng.choice([1, 2, 9, 10, 0x1A, 0x41, 0x5A, rng.getrandbits(7)])),
        lambda: bench.write(n, CONTAINED, rng.choice([1, 8, 9, 0xFFFF_FFFF]), rng.choice([1, 15])),
        lambda: bench.write(n, CONTAINED, 9, 1),
        lambda: bench.write(n, LINK, rng.choice([0, 0, 0x10]), 3),
        lambda: bench.write(n, STATUS, 0xFFFF_FFFF),
        lambda: bench.write(n, SEVERITY, rng.choice([0x462030, 0xFFFF_FFFF, 0])),
        lambda: bench.write(n, MASK, rng.choice([0, 0, SURPRISE, rng.getrandbits(32)])),
        lambda: bench.write(n, MSI, rng.getrandbits(1) << 16),
    ])()


@pytest.mark.parametrize(("width", "ports", "rounds", "steps"), [
    (64, 3, 2, 25), *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 3, 8, 60), (64, 8, 10, 80), (32, 2, 10, 60), (512, 3, 10, 120)))])
def test_random_steps(width, ports, rounds, steps):
    """Errors, messages, links, controls, clears, one at a time: as the golden switch says."""
    rng = random.Random(seed() * 1000 + width + ports)
    bench = DpcBench(width, ports, rng, density=0.9)
    names = tuple(k for k in KINDS if not k.startswith("CfgWr"))
    reasons, statuses, msis = Counter(), Counter(), 0

    async def main(ctx):
        nonlocal msis
        for _ in range(rounds):
            bench.present(ctx, (1 << ports) - 1)
            await bench.step(ctx, random_configuration(rng, ports))
            await bench.step(ctx, list(random_error_setup(rng, bench)))
            await bench.step(ctx, [raw for n in range(ports) for raw in (
                bench.write(n + 1, MSI + 1, MSI_ADDRESS + 16 * n), bench.write(n + 1, MSI + 2, 0),
                bench.write(n + 1, MSI + 3, n), bench.write(n + 1, MSI, 1 << 16),
                bench.control(n + 1, rng.choice([1, 2, 0x1A])))])
            for raw in random_traffic(rng, bench, steps, kinds=names):
                what, out = rng.random(), []
                held = [n + 1 for n in range(ports) if bench.contained(n + 1)[0]]
                if held and rng.random() < 0.5:
                    await bench.lose(ctx, (1 << ports) - 1)
                    await bench.lose(ctx, link=(1 << ports) - 1)
                    await bench.step(ctx, [raw for n in held for raw in (
                        bench.write(n, CONTAINED, 9, 1),
                        bench.control(n, rng.choice([1, 2, 0xA, 0x1A])))])
                if what < 0.2:
                    port = rng.randrange(ports)
                    bus = bench.golden.down[port].buses()[0]
                    _, out = await bench.step(ctx, [], [(port, message(
                        rng.choice([COR, NONFATAL, FATAL]), 0, bus << 8 | rng.randrange(8)))])
                elif what < 0.23:
                    port = rng.choice([UP, *range(ports)])
                    if port == UP or bench.golden.link_active(port):
                        await bench.malformed(ctx, port)
                elif what < 0.28:
                    await bench.step(ctx, [bench.control(rng.randrange(ports) + 1, rng.choice(
                        [0x41, 0x42, 0x49, 0x5A]))])
                elif what < 0.4:
                    present = rng.getrandbits(ports) | rng.getrandbits(ports)
                    await bench.lose(ctx, present, link=rng.choice([None, present]))
                elif what < 0.6:
                    _, out = await bench.step(ctx, [random_step(rng, bench)])
                elif what < 0.8:
                    _, out = await bench.step(ctx, [raw])
                else:
                    _, out = await bench.step(ctx, [], [(rng.randrange(ports), raw)])
                statuses.update(Tlp.unpack(raw).status for _, raw in out
                                if Tlp.unpack(raw).kind == "Cpl")
                msis += len(bench.last_msis)
                reasons.update(bench.contained(n + 1)[1] for n in range(ports)
                               if bench.contained(n + 1)[0])

    bench.simulate(main, deadline=6_000_000)
    print(reasons, statuses, msis)
    assert len(reasons) > 2
    assert rounds < 10 or len(reasons) == 4 and {UR, CA} <= set(statuses) and msis
