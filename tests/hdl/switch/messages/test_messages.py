"""dxpu.switch.messages.messages: INTx wires, PME handshake and local messages, against the
golden switch."""

import itertools
import random

import pytest
from dxpu.switch import Identity
from dxpu.switch.config.identity import SlotOptions
from dxpu.switch.messages.messages import MessageSender
from dxpu.tlp.types import Fmt, Routing, Type
from dxpu_model.switch import UP
from dxpu_model.tlp import Tlp
from tests.hdl.switch.test_switch import enumerate_tree
from tests.support.switch_bench import SwitchBench, config_tlp
from tests.support.testbench import collect_packets, seed, simulate

ASSERT, DEASSERT, TURN_OFF, TO_ACK, PME = 0x20, 0x24, 0x19, 0x1B, 0x18


def message(code, routing, requester=0, payload=b"", **fields):
    """A message with this code and routing."""
    return Tlp(Fmt.HEADER_4_DATA if payload else Fmt.HEADER_4, Type.MESSAGE_TO_ROOT | routing,
               length=len(payload) // 4, requester_id=requester, message_code=code,
               payload=payload, **fields).pack()


def intx(slot, pin, level, **fields):
    """What a device in ``slot`` says about its pin."""
    return slot, message((ASSERT if level else DEASSERT) + pin, 4, 3 + slot << 8, **fields)


def ack(slot):
    """PME_TO_Ack of a device."""
    return slot, message(TO_ACK, 5, 3 + slot << 8)


class Bench(SwitchBench):
    """Compares what the switch itself says after each step."""

    async def step(self, ctx, from_up=(), from_slots=(), **kwargs):
        out = await self.run(ctx, from_up, from_slots, **kwargs)
        told, expected = self.told, self.to_tell
        assert sorted(told) == sorted(expected)
        self.told, self.to_tell = [], []
        return [Tlp.unpack(raw).message_code for raw in told], out


async def start(bench, ctx, mask=None):
    await enumerate_tree(bench, ctx)
    bench.present(ctx, (1 << bench.ports) - 1 if mask is None else mask)
    assert await bench.step(ctx) == ([], [])


def test_pins_are_swizzled_by_port():
    """PCIe Base 5.0, Table 2-19, by hand: ports 0 and 4 keep the letter, port 1 makes A B."""
    bench = Bench(64, 6, random.Random(seed()))
    table = {(0, 0): 0, (1, 0): 1, (2, 0): 2, (3, 0): 3, (4, 0): 0, (5, 0): 1,
             (1, 3): 0, (2, 2): 0, (3, 1): 0, (3, 3): 2, (5, 2): 3, (4, 3): 3}

    async def main(ctx):
        await start(bench, ctx)
        for (slot, pin), wire in table.items():
            for level, code in ((1, ASSERT), (0, DEASSERT)):
                assert await bench.step(ctx, [], [intx(slot, pin, level)]) == ([code + wire], [])
        # Two pins on one wire: the first and the last change are told. Saying it twice is nothing.
        for slot, pin, level, codes in (
                (0, 0, 1, [ASSERT]), (0, 0, 1, []), (4, 0, 1, []), (1, 3, 1, []), (0, 0, 0, []),
                (0, 0, 0, []), (1, 3, 0, []), (4, 0, 0, [DEASSERT])):
            assert (await bench.step(ctx, [], [intx(slot, pin, level)]))[0] == codes
        # Interrupt Disable of both bridges does not concern what comes from below.
        await bench.step(ctx, [config_tlp(0x0100, 1, 0x407), config_tlp(
            0x0200, 1, 0x407, type1=True)])
        assert (await bench.step(ctx, [], [intx(0, 2, 1)]))[0] == [ASSERT + 2]

    bench.simulate(main)


def test_a_wire_falls_with_its_link():
    """Surprise removal, Link Disable, Secondary Bus Reset of port and switch; then from anew."""
    bench = Bench(64, 3, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        ways = (
            (lambda: bench.present(ctx, 0b101), lambda: bench.present(ctx, 0b111)),
            (config_tlp(0x0208, 0x1C, 0x10, type1=True), config_tlp(0x0208, 0x1C, 0, type1=True)),
            (config_tlp(0x0208, 0xF, 1 << 22, type1=True), config_tlp(0x0208, 0xF, 0, type1=True)),
        )
        for down, up in ways:
            told, _ = await bench.step(ctx, [], [intx(1, 0, 1), intx(1, 3, 1), intx(0, 2, 1)])
            assert told == [ASSERT + 1, ASSERT, ASSERT + 2]
            for what, codes in ((down, {DEASSERT, DEASSERT + 1}), (up, set())):
                if callable(what):
                    what()
                    told, _ = await bench.step(ctx)
                else:
                    told, _ = await bench.step(ctx, [what])
                assert set(told) == codes and len(told) == len(codes)
            assert (await bench.step(ctx, [], [intx(1, 3, 0), intx(0, 2, 0)]))[0] == [DEASSERT + 2]
        # The reset of the switch takes the wires of all slots.
        await bench.step(ctx, [], [intx(1, 1, 1), intx(0, 3, 1)])
        told, _ = await bench.step(ctx, [config_tlp(0x0100, 0xF, 1 << 22)])
        assert sorted(told) == [DEASSERT + 2, DEASSERT + 3]

    bench.simulate(main)


def test_a_message_of_a_link_that_went_is_not_heard():
    """Assert_INTx waits behind a blocked write while its link goes and comes back."""
    bench = Bench(64, 2, random.Random(seed()))
    write = Tlp(Fmt.HEADER_3_DATA, Type.MEMORY, length=8, requester_id=0x300, first_be=15,
                last_be=15, address=0x1000, payload=bytes(32))

    async def main(ctx):
        await start(bench, ctx)
        bench.hold_up = True
        # The first write was waited for already; the second one stops the message.
        stream = [(0, write.pack()), (0, write.pack()), intx(0, 0, 1)]
        bench.feed(stream)
        await ctx.tick().repeat(200)
        bench.present(ctx, 2)
        bench.tell()
        await ctx.tick().repeat(5)
        bench.present(ctx, 3)
        bench.tell()
        await ctx.tick().repeat(5)
        bench.hold_up = False
        await ctx.tick().repeat(200)
        assert [p.data for p in bench.got["up_o"]] == [write.pack()] * 2
        bench.got["up_o"].clear()
        assert not bench.told and bench.wires == [False] * 4
        assert (await bench.step(ctx, [], [intx(0, 0, 1)]))[0] == [ASSERT]

    bench.simulate(main)


def test_pme_handshake():
    """PME_Turn_Off goes to all; one PME_TO_Ack goes up when each slot has answered or has gone."""
    bench = Bench(64, 4, random.Random(seed()))
    off = message(TURN_OFF, 3, 0x0008)

    async def main(ctx):
        await start(bench, ctx, 0)
        assert await bench.step(ctx, [off]) == ([TO_ACK], [])
        for mask, answers in ((0b0100, [2]), (0b1111, [3, 0, 1, 2]), (0b1011, [1, 0, 3])):
            bench.present(ctx, mask)
            assert (await bench.step(ctx, [], [ack(answers[0])]))[0] == []  # nobody asked
            told, out = await bench.step(ctx, [off])
            assert told == [] and sorted(out) == [(s, off) for s in sorted(answers)]
            for slot in answers[:-1]:
                # One slot that answers twice is not two slots.
                assert await bench.step(ctx, [], [ack(slot), ack(slot)]) == ([], [])
            assert await bench.step(ctx, [], [ack(answers[-1])]) == ([TO_ACK], [])
            assert await bench.step(ctx, [], [ack(answers[0])]) == ([], [])
        # Slots that go are done; one that comes was not asked.
        bench.present(ctx, 0b0011)
        await bench.step(ctx, [off])
        bench.present(ctx, 0b0110)
        assert await bench.step(ctx) == ([], [])
        assert await bench.step(ctx, [], [ack(2)]) == ([], [])
        bench.present(ctx, 0b0100)
        assert await bench.step(ctx) == ([TO_ACK], [])
        # A second PME_Turn_Off asks again.
        bench.present(ctx, 0b1100)
        await bench.step(ctx, [off], [ack(0)])
        await bench.step(ctx, [], [ack(2)])
        assert (await bench.step(ctx, [off]))[0] == []
        assert (await bench.step(ctx, [], [ack(3)]))[0] == []
        assert (await bench.step(ctx, [], [ack(2)]))[0] == [TO_ACK]

    bench.simulate(main)
    assert bench.totals["fenced"] == 1 and not bench.totals["unclaimed1"]


def test_pme_goes_up_as_it_is():
    """PM_PME keeps the identifier of its device, also without Bus Master Enable and in D3hot."""
    bench = Bench(64, 2, random.Random(seed()))
    pme = message(PME, 0, 0x0405)

    async def main(ctx):
        await start(bench, ctx)
        assert await bench.step(ctx, [], [(1, pme)]) == ([], [(UP, pme)])
        for register, value in ((1, 0), (0x11, 3)):
            await bench.step(ctx, [config_tlp(0x0208, register, value, type1=True)])
        await bench.step(ctx, [config_tlp(0x0100, 0x11, 3)])
        assert await bench.step(ctx, [], [(1, pme)]) == ([], [(UP, pme)])

    bench.simulate(main)


def test_slot_power_limits():
    """One message for each link that comes up, and for each write to Slot Capabilities."""
    bench = Bench(64, 3, random.Random(seed()))

    def limit(port):
        return port, message(0x50, 4, 0x0200 | port << 3, bytes([0xF2, 0, 0, 0]))

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        for mask, ports in ((0b010, [1]), (0b010, []), (0b111, [0, 2]), (0, []), (0b101, [0, 2])):
            bench.all_limits.clear()
            bench.present(ctx, mask)
            await bench.step(ctx)
            assert bench.all_limits == [limit(n) for n in ports]
        for port, expected in ((0, [limit(0)]), (1, []), (2, [limit(2)])):
            bench.all_limits.clear()
            await bench.step(ctx, [config_tlp(0x0200 | port << 3, 0x1D, 0, type1=True)])
            assert bench.all_limits == expected
        # A link that was disabled comes up again.
        bench.all_limits.clear()
        for value in (0x10, 0):
            await bench.step(ctx, [config_tlp(0x0200, 0x1C, value, type1=True)])
        assert bench.all_limits == [limit(0)]

    bench.simulate(main)


def test_slot_power_limits_can_be_silenced():
    """7.5.3.10: Auto Slot Power Limit Disable, bit 13 of Slot Control, in builds with DPC."""
    bench = Bench(64, 2, random.Random(seed()),
                  identity=Identity(slot=SlotOptions(surprise=False, dpc=True)))
    limits = [(port, message(0x50, 4, 0x0200 | port << 3, bytes([0xF2, 0, 0, 0])))
              for port in range(2)]

    async def main(ctx):
        async def expect(*sent):
            await bench.step(ctx)
            assert bench.all_limits == list(sent)
            bench.all_limits.clear()

        def control(value):
            return bench.step(ctx, [config_tlp(0x0208, 0x78 // 4, value, type1=True, enables=3)])

        await enumerate_tree(bench, ctx)
        await control(1 << 13)
        out = await bench.run(ctx, [config_tlp(0x0208, 0x78 // 4, type1=True)])
        assert Tlp.unpack(out[0][1]).payload[:2] == bytes([0, 0x20])
        bench.present(ctx, 3)
        await expect(limits[0])
        # A write to Slot Capabilities is still answered by one.
        await bench.step(ctx, [config_tlp(0x0208, 0x74 // 4, 0, type1=True)])
        await expect(limits[1])
        await control(0)
        await expect()
        for mask in (0, 3):
            bench.present(ctx, mask)
            await bench.step(ctx)
        await expect(*limits)

    bench.simulate(main)


def ltr(requester, snoop, no_snoop):
    """Bytes by hand: 2.2.8.8; the latency that is not snooped comes first."""
    return bytes.fromhex("34000000") + requester.to_bytes(2, "big") + bytes.fromhex(
        "0010 00000000") + no_snoop.to_bytes(2, "big") + snoop.to_bytes(2, "big")


def test_latencies_are_told_as_one():
    """6.18: the least of what slots require, less the switch's own, which is 6,000 ns here."""
    bench = Bench(64, 3, random.Random(seed()),
                  identity=Identity(latency=6000, latency_spacing=4))
    required, us = 1 << 15, 2 << 10  # requirement; units of 1,024 ns
    enable, device_control_2 = 1 << 10, 0x88 // 4

    async def main(ctx):
        async def told(raws, *expected):
            await bench.run(ctx, from_slots=raws, settle=400)
            assert bench.told == bench.to_tell == list(expected)
            bench.told, bench.to_tell = [], []

        async def control(target, value):
            await bench.run(ctx, [config_tlp(target, device_control_2, value,
                                             type1=target != 0x0100)])

        await start(bench, ctx)
        # Not enabled at the port: an unknown message.
        await told([(0, ltr(0x0300, required | us | 71, 0))])
        for target in (0x0100, 0x0200, 0x0208):
            await control(target, enable)
            await told([])
        # 71 x 1,024 ns less 6,000 is 65.1 of 1,024 ns; 314 x 32 ns less that is 126.5 of 32.
        await told([(0, ltr(0x0300, required | us | 71, 0))],
                   ltr(0x0100, required | us | 65, 0))
        await told([(1, ltr(0x0400, required | us | 100, required | 1 << 10 | 314))],
                   ltr(0x0100, required | us | 65, required | 1 << 10 | 126))
        await told([(2, ltr(0x0500, required, required))])  # not enabled at that port
        # The slot that was the strictest goes.
        bench.present(ctx, 0b110)
        await told([], ltr(0x0100, required | us | 94, required | 1 << 10 | 126))
        await control(0x0208, 0)
        await told([], ltr(0x0100, 0, 0))

    bench.simulate(main)


def test_local_messages():
    """Known ones end here without a word; the others are counted, Vendor_Defined Type 0 too."""
    bench = Bench(64, 2, random.Random(seed()))
    silent = (0x40, 0x41, 0x43, 0x44, 0x45, 0x47, 0x48, 0x7F)
    unknown = (0x10, 0x12, 0x14, 0x52, 0x53, 0x7E, 0x00, 0xFF)

    async def main(ctx):
        await start(bench, ctx)
        for code in silent + unknown:
            out = await bench.run(ctx, [message(code, 4, 8)], [(1, message(code, 4, 0x400))])
            assert out == []
        # By ID to a port of the switch: Type 1 has no effect, Type 0 is not supported.
        for target in (0x0100, 0x0200, 0x0208):
            for code in (0x7E, 0x7F):
                await bench.run(ctx, [message(code, 2, 8, target_id=target)])
        # To nobody, both are unsupported; to a slot both pass.
        for code in (0x7E, 0x7F):
            assert await bench.run(ctx, [message(code, 2, 8, target_id=0x0210)]) == []
            raw = message(code, 2, 8, target_id=0x0400)
            assert await bench.run(ctx, [raw]) == [(1, raw)]
            for routing in (0, 2):
                raw = message(code, routing, 0x400, **({"target_id": 8} if routing else {}))
                assert await bench.run(ctx, [], [(1, raw)]) == [(UP, raw)]
            raw = message(code, 3, 8)
            assert sorted(await bench.run(ctx, [raw])) == [(0, raw), (1, raw)]

    bench.simulate(main)
    assert bench.totals["unclaimed0"] == len(unknown) + 3 + 2
    assert bench.totals["unclaimed1"] == len(unknown)


def test_only_acknowledgements_are_gathered():
    bench = Bench(64, 2, random.Random(seed()))
    others = (0x00, 0x18, 0x19, 0x1A, 0x20, 0x27, 0x30, 0x7E, 0x7F, 0xFF)

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [], [(0, message(code, 5, 0x300)) for code in others])
        # From above nothing is gathered at all.
        await bench.step(ctx, [message(TO_ACK, 5, 8), message(0x7F, 5, 8)])

    bench.simulate(main)
    assert bench.totals["unclaimed1"] == len(others) and bench.totals["unclaimed0"] == 2


@pytest.mark.parametrize(("width", "ports", "steps"), [
    (64, 5, 60), (32, 2, 40), (512, 3, 40),
    pytest.param(64, 32, 600, marks=pytest.mark.long),
    pytest.param(128, 8, 1500, marks=pytest.mark.long)])
def test_random_steps(width, ports, steps):
    """Pins, links and the handshake in any order, one step at a time."""
    rng = random.Random(seed() * 100 + width + ports)
    bench = Bench(width, ports, rng, density=0.8)
    codes = set()

    async def main(ctx):
        await start(bench, ctx)
        for _ in range(steps):
            slot = rng.randrange(ports)
            what = rng.random()
            if what < 0.15:
                mask = rng.getrandbits(ports) | rng.getrandbits(ports)
                bench.present(ctx, mask)
                told, _ = await bench.step(ctx)
            elif what < (0.16 if bench.golden.gathering else 0.3):  # seldom once more
                told, _ = await bench.step(ctx, [message(TURN_OFF, 3, 8)])
            elif what < 0.6:
                slot = rng.choice([slot, *bench.golden.gathering])
                told, _ = await bench.step(ctx, [], [ack(slot)])
            else:
                told, _ = await bench.step(ctx, [], [intx(
                    slot, rng.randrange(4), rng.getrandbits(1), tag=rng.getrandbits(8))])
            codes.update(told)

    bench.simulate(main, deadline=2_000_000)
    assert TO_ACK in codes and codes & set(range(0x20, 0x24)) and codes & set(range(0x24, 0x28))


def test_messages_are_built_bit_by_bit():
    """Against the golden packer, with and without payload, for every routing."""
    rng = random.Random(seed())
    for width in (32, 64, 128, 256, 512):
        dut = MessageSender(width)
        requests = [{"code": rng.choice([0x19, 0x1B, 0x30, 0x50]), "routing": routing,
                     "requester_id": rng.getrandbits(16), "port": rng.randrange(32),
                     "has_data": has_data, "data": rng.getrandbits(32)}
                    for routing, has_data in itertools.product(Routing, (0, 1))]
        got = []

        async def feed(ctx, dut=dut, requests=requests):
            for request in requests:
                ctx.set(dut.i.payload, request)
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

        simulate(dut, feed, collect_packets(dut.o, len(requests), got, rng=rng, density=0.7))
        for request, packet in zip(requests, got, strict=True):
            data = request["data"].to_bytes(4, "little")
            expected = message(request["code"], request["routing"].value, request["requester_id"],
                               data if request["has_data"] else b"")
            # Without data it is the last dword of the header.
            assert packet.data == (expected if request["has_data"] else expected[:12] + data)
            assert packet.meta.port == request["port"]
