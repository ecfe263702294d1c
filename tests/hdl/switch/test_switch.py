"""dxpu.switch: enumeration, and completions bit by bit."""

import random

import pytest
from dxpu.stream import payload_shape
from dxpu.switch import Identity, VirtualSwitch
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.tlp.types import CompletionStatus
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp, classify, complete
from dxpu_sim.switch.golden import golden_switch
from tests.support.switch_bench import SwitchBench, config_tlp, info_of, random_traffic
from tests.support.testbench import Packet, beats, drive_packets, seed, simulate


async def access(bench, ctx, bus, device, register, data=None, *, type1, function=0, enables=15):
    """One configuration access; its completion as a :class:`Tlp`."""
    raw = config_tlp(bus << 8 | device << 3 | function, register, data, type1=type1,
                     enables=enables, tag=bench.rng.getrandbits(8))
    (side, answer), = await bench.run(ctx, [raw], settle=1)
    assert side == UP
    return Tlp.unpack(answer)


async def enumerate_tree(bench, ctx, first_bus=1, io=False, scan=None):
    """What firmware does: find the bridges, number the buses, open windows, enable."""
    async def read(bus, device, register):
        answer = await access(bench, ctx, bus, device, register, type1=bus != first_bus)
        return int.from_bytes(answer.payload, "little") if answer.status == 0 else 0xFFFF_FFFF

    async def write(bus, device, register, data, enables=15):
        answer = await access(bench, ctx, bus, device, register, data, type1=bus != first_bus,
                              enables=enables)
        assert answer.status == 0

    found = []
    assert await read(first_bus, 0, 0) == 0xD0F0_1234
    assert await read(first_bus, 0, 3) >> 16 & 0x7F == 1
    inside = first_bus + 1
    await write(first_bus, 0, 6, 0xFF << 16 | inside << 8 | first_bus)
    bus = inside + 1
    for device in range(scan or bench.ports + 1):
        identity = await read(inside, device, 0)
        if identity == 0xFFFF_FFFF:
            continue
        found.append(device)
        assert identity == 0xD0F1_1234
        await write(inside, device, 6, bus << 16 | bus << 8 | inside)
        assert await read(bus, 0, 0) == 0xFFFF_FFFF  # nothing below
        await write(inside, device, 8, (0x8000 + 16 * device) << 16 | 0x8000 + 16 * device)
        base = 0x20_0000_0000 + (device << 32)
        await write(inside, device, 9, (0xFFF1 << 16) | 1)
        await write(inside, device, 10, base >> 32)
        await write(inside, device, 11, base >> 32)
        if io:
            await write(inside, device, 7, device << 12 | device << 4, 3)
        await write(inside, device, 1, 7)
        bus += 1
    await write(first_bus, 0, 6, (bus - 1) << 16 | inside << 8 | first_bus)
    await write(first_bus, 0, 8, (0x8000 + 16 * 31) << 16 | 0x8000)
    await write(first_bus, 0, 9, 0xFFF1 << 16 | 1)
    await write(first_bus, 0, 10, 0x20)
    await write(first_bus, 0, 11, 0x20 + 31)
    if io:
        await write(first_bus, 0, 7, 0xF000, 3)
    await write(first_bus, 0, 1, 7)
    return found


@pytest.mark.parametrize(("width", "ports"), [(64, 8), (64, 1), (512, 3), (32, 2)])
def test_enumeration_of_the_empty_switch(width, ports):
    bench = SwitchBench(width, ports, random.Random(seed()))

    async def main(ctx):
        assert await enumerate_tree(bench, ctx, io=True, scan=32) == list(range(ports))

    bench.simulate(main)
    assert bench.golden.captured == 0x0100
    assert bench.totals["config"] and bench.totals["unsupported0"] >= 32 - ports + ports


def test_arguments():
    with pytest.raises(ValueError, match="width must be one of"):
        VirtualSwitch(65)
    with pytest.raises(ValueError, match="ports must be an integer from 1 to 32, not 0"):
        VirtualSwitch(64, ports=0)
    assert Identity().vendor


def memory_tlp(address, *, dwords=1, write=False, requester=0x0008, tag=0, wide=True):
    """A memory read or write of whole dwords."""
    kind = ("MWr" if write else "MRd") + ("64" if wide else "32")
    fmt, type = KINDS[kind]
    return Tlp(fmt, type, length=dwords, requester_id=requester, tag=tag, first_be=15,
               last_be=15 if dwords > 1 else 0, address=address,
               payload=bytes(range(256))[:4] * dwords if write else b"").pack()


def device(port, raw, seen):
    """What a GPU in slot ``port`` answers to a configuration request."""
    request = Tlp.unpack(raw)
    info = classify(raw)
    assert info.is_config and not info.is_type1
    seen.append((port, info.target_id, info.register, info.is_write))
    word = 0 if info.register else 0x2684_10DE
    data = b"" if info.is_write else word.to_bytes(4, "little")
    return port, complete(request, CompletionStatus.SC, info.target_id, data).pack()


def test_hot_added_devices_are_found():
    """A device in a slot: type 1 arrives as type 0, its completion comes back, both ways of DMA."""
    bench = SwitchBench(64, 4, random.Random(seed()), density=0.8)
    seen = []

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 0b1010)
        for slot in (1, 3):
            bus = 3 + slot
            # Slot Status and Link Status of the port.
            status = await access(bench, ctx, 2, slot, 0x1E, type1=True)
            assert int.from_bytes(status.payload, "little") >> 22 & 1
            status = await access(bench, ctx, 2, slot, 0x1C, type1=True)
            assert int.from_bytes(status.payload, "little") >> 16 & 0x3BFF == 0x3103
            for data in (None, 0x1234):
                raw = config_tlp(bus << 8, 0, data, type1=True, tag=5)
                (port, arrived), = await bench.run(ctx, [raw])
                assert port == slot
                assert arrived == bytes([raw[0] & ~1]) + raw[1:]
                (side, answer), = await bench.run(ctx, [], [device(port, arrived, seen)])
                assert side == UP
                if data is None:
                    assert Tlp.unpack(answer).payload == (0x2684_10DE).to_bytes(4, "little")
            # Another device number is nobody's.
            raw = config_tlp(bus << 8 | 1 << 3, 0, type1=True)
            (side, answer), = await bench.run(ctx, [raw])
            assert side == UP and Tlp.unpack(answer).status == 1
            assert Tlp.unpack(answer).completer_id == 2 << 8 | slot << 3
            # DMA up, to the other slot, MMIO down.
            peer = 4 - slot
            away, mmio = memory_tlp(0x1_0000, write=True, dwords=9, requester=bus << 8), memory_tlp(
                0x20_0000_0000 + (slot << 32), requester=8)
            across = memory_tlp(0x20_0000_0000 + (peer << 32), requester=bus << 8)
            out = await bench.run(ctx, [mmio], [(slot, away), (slot, across)])
            assert sorted(out) == sorted([(UP, away), (slot, mmio), (peer, across)])
        assert [s[:2] for s in seen] == [(1, 0x400), (1, 0x400), (3, 0x600), (3, 0x600)]

    bench.simulate(main)
    assert bench.totals["peer"] == 2 and bench.totals["blocked"] == 0


@pytest.mark.parametrize("ports", [8, pytest.param(1, marks=pytest.mark.long)])
def test_before_anything_is_configured(ports):
    """Windows closed, buses 0, nothing enabled: every TLP of every kind ends, nothing hangs.

    Messages to the root complex go up all the same.
    """
    rng = random.Random(seed())
    bench = SwitchBench(64, ports, rng, density=0.7)
    kinds = tuple(k for k in KINDS if not k.startswith("CfgWr"))

    async def main(ctx):
        for mask in (0, (1 << ports) - 1):
            bench.present(ctx, mask)
            await bench.run(ctx, list(random_traffic(rng, bench, 60, kinds=kinds)),
                            [(rng.randrange(ports), raw)
                             for raw in random_traffic(rng, bench, 60, kinds=tuple(KINDS))])

    bench.simulate(main)
    for counter in ("unsupported0", "unclaimed0", "unexpected0", "unsupported1", "unclaimed1",
                    "fenced"):
        assert bench.totals[counter], counter
    assert not bench.totals["blocked"]


async def first_beats(bench, ctx, name_i, name_o, raw, slot=None):
    """Cycles from the first beat in to the first beat out of a single TLP."""
    i, o = getattr(bench.dut, name_i), getattr(bench.dut, name_o)
    times = {}
    meta = info_of(raw) if slot is None else {"port": slot, "info": info_of(raw)}
    left = list(beats(payload_shape(i), Packet(raw, meta)))
    for now in range(200):
        if left:
            ctx.set(i.payload, left[0])
        ctx.set(i.valid, bool(left))
        _, _, ready, o_valid = await ctx.tick().sample(i.ready, o.valid)
        if left:
            times.setdefault("i", now)
        if o_valid:
            times.setdefault("o", now)
        if left and ready:
            left.pop(0)
    return times["o"] - times["i"]


@pytest.mark.parametrize("width", [64, 512])
def test_latency(width):
    bench = SwitchBench(width, 2, random.Random(seed()))
    got = {}

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        await ctx.tick().repeat(20)
        down = memory_tlp(0x20_0000_0000, dwords=60, write=True)
        up = memory_tlp(0x1_0000, dwords=60, write=True, requester=0x300)
        got["down"] = await first_beats(bench, ctx, "upstream_i", "downstream_o", down)
        got["up"] = await first_beats(bench, ctx, "downstream_i", "upstream_o", up, slot=0)

    simulate(bench.dut, main, background=bench.background)
    print(width, got)
    assert got == {"down": 5, "up": 5}


@pytest.mark.parametrize(("width", "dwords", "write", "cycles"), [
    (64, 32, True, 18), (64, 64, True, 34), (64, 1, False, 3), (512, 64, True, 5),
    (512, 1, False, 3), (32, 1, False, 4)])
def test_throughput(width, dwords, write, cycles):
    """Cycles per TLP, back to back, in both directions at once."""
    bench = SwitchBench(width, 2, random.Random(seed()))
    count = 16

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        await ctx.tick().repeat(20)
        down = [memory_tlp(0x20_0000_0000, dwords=dwords, write=write, tag=n)
                for n in range(count)]
        up = [(0, memory_tlp(0x1_0000, dwords=dwords, write=write, requester=0x300, tag=n))
              for n in range(count)]
        await bench.run(ctx, down, up)
        for name in ("up_o", "down_o"):
            packets = bench.packets[name]
            taken = packets[-1].last_cycle - packets[0].last_cycle
            assert taken <= cycles * (count - 1) + 2, f"{taken / (count - 1)} cycles a TLP"

    bench.simulate(main)


SLOT_LINK_STATUS = function_map(DOWNSTREAM).dword("Link Status")


def test_link_status_reads_down_behind_what_was_due():
    """Posted writes that were decided about, and those still to come, leave before the answer."""
    bench = SwitchBench(64, 2, random.Random(seed()))
    dut = bench.dut
    write = memory_tlp(0x1_0000, dwords=1, write=True, requester=0x300)
    read = config_tlp(0x200, SLOT_LINK_STATUS, type1=True)
    got = bench.got["up_o"]

    def feed(name, raw, meta):
        return drive_packets(getattr(dut, name), [Packet(raw, meta)])

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        await ctx.tick().repeat(5)
        got.clear()
        slot = {"port": 0, "info": info_of(write)}
        await feed("downstream_i", write, slot)(ctx)
        ctx.set(dut.late, 1)
        bench.present(ctx, 2)
        await feed("upstream_i", read, info_of(read))(ctx)
        await ctx.tick().repeat(100)
        assert len(got) == 1
        await feed("downstream_i", write, slot | {"due": 1})(ctx)
        ctx.set(dut.late, 0)
        await ctx.tick().repeat(100)

    simulate(dut, main, background=bench.background)
    assert len(got) == 3 and [p.data for p in got[:2]] == [write, write]
    completion = Tlp.unpack(got[2].data)
    assert completion.kind == "CplD" and not completion.payload[3] & 0x20


def test_an_answer_does_not_wait_for_a_late_tlp_whose_error_waits_for_it():
    """A link ends while an error of its slot is noted, and a port is being read."""
    bench = SwitchBench(64, 2, random.Random(seed()))
    dut = bench.dut
    wrong = memory_tlp(0x20_0000_0000, dwords=1, write=True, requester=0x300)  # its own window
    read = config_tlp(0x200, SLOT_LINK_STATUS, type1=True)
    got = bench.got["up_o"]

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        for first in range(1, 12):
            for then in range(1, 9):
                bench.present(ctx, 3)
                await ctx.tick().repeat(80)
                got.clear()
                slot = {"port": 0, "info": info_of(wrong)}
                bench._jobs["up_i"] = drive_packets(dut.upstream_i, [Packet(read, info_of(read))])
                await ctx.tick().repeat(first)
                bench._jobs["down_i"] = drive_packets(dut.downstream_i, [Packet(wrong, slot)] * 2)
                await ctx.tick().repeat(then)
                bench.present(ctx, 2)
                for _ in range(600):
                    await ctx.tick()
                    if any(Tlp.unpack(p.data).kind == "CplD" for p in got):
                        break
                else:
                    raise AssertionError(f"no answer: {first}, {then}")

    simulate(dut, main, background=bench.background)


def test_requests_from_slot_to_slot_need_room():
    """Without room they are answered; all else passes."""
    bench = SwitchBench(64, 2, random.Random(seed()))
    dut = bench.dut
    read = memory_tlp(0x20_0000_0000, requester=0x400, tag=9)
    write = memory_tlp(0x20_0000_0000, write=True, requester=0x400)
    got = bench.got["down_o"]

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        ctx.set(dut.peer_room, 0)
        await ctx.tick().repeat(5)
        got.clear()
        for raw in (read, write):
            await drive_packets(dut.downstream_i, [
                Packet(raw, {"port": 1, "info": info_of(raw)})])(ctx)
            await ctx.tick().repeat(50)

    simulate(dut, main, background=bench.background)
    assert [p.meta.port for p in got] == [1, 0] and got[1].data == write
    answer = Tlp.unpack(got[0].data)
    assert (answer.status, answer.tag, answer.requester_id) == (1, 9, 0x400)


def test_a_lost_upstream_link_resets_everything():
    """Configuration and links, when it goes; both are there again when it is back."""
    bench = SwitchBench(64, 2, random.Random(seed()))
    dut = bench.dut

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.link_active) == 3 and ctx.get(dut.bus) == 2
        ctx.set(dut.upstream_down, 1)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.link_active) == 0
        await ctx.tick().repeat(1000)
        assert ctx.get(dut.link_active) == 0 and ctx.get(dut.bus) == 0
        ctx.set(dut.upstream_down, 0)
        await ctx.tick().repeat(1000)
        assert ctx.get(dut.link_active) == 3 and ctx.get(dut.bus) == 0
        bench.golden = golden_switch(2)
        bench.present(ctx, 0)
        bench.limits.clear()  # power limits for the links that came up again
        await enumerate_tree(bench, ctx)
        assert ctx.get(dut.bus) == 2

    simulate(dut, main, background=bench.background)


def test_what_a_lost_upstream_link_leaves_behind_is_soon_gone_and_nobody_s_error():
    """TLPs of before do not wait for each other's errors, and leave no trace in what comes next."""
    bench = SwitchBench(64, 2, random.Random(seed()))
    dut = bench.dut
    write = Tlp(*KINDS["MWr32"], address=0x1000, length=1, first_be=15, requester_id=0x0008,
                payload=bytes(4)).pack()
    # From the slot: a completion that says UR, which bridges on its way note.
    refusal = Tlp(*KINDS["Cpl"], completer_id=0x0300, requester_id=0x0008, status=1,
                  byte_count=4).pack()
    cycles = []

    async def count(ctx):
        async for _ in ctx.tick():
            cycles.append(None)

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        refusals = [Packet(refusal, {"port": 1, "due": 1, "info": info_of(refusal)})] * 20
        ctx.set(dut.upstream_down, 1)
        began = len(cycles)
        await drive_packets(dut.upstream_i, [Packet(write, info_of(write))] * 20)(ctx)
        await drive_packets(dut.downstream_i, refusals)(ctx)
        assert len(cycles) - began < 300
        ctx.set(dut.upstream_down, 0)
        await ctx.tick().repeat(1200)
        bench.golden = golden_switch(2)
        bench.got["up_o"].clear()
        for register, errors in ((1, 0xF900_0000), (0x68 // 4, 0x000F_0000)):
            answer = await access(bench, ctx, 1, 0, register, type1=False)
            assert not int.from_bytes(answer.payload, "little") & errors

    simulate(dut, main, background=[*bench.background, count])


def test_a_port_is_in_use_while_memory_or_requests_pass():
    """Memory Space Enable is bit 1 of Command, Bus Master Enable bit 2 (7.5.1.1.3)."""
    bench = SwitchBench(64, 2, random.Random(seed()))

    async def main(ctx):
        in_use = bench.dut.switch.in_use
        await enumerate_tree(bench, ctx)
        assert ctx.get(in_use) == 3
        for command, expected in ((0x547 & ~6, 1), (2, 3), (0, 1), (4, 3), (6, 3), (1, 1)):
            await access(bench, ctx, 2, 1, 1, command, type1=True, enables=3)
            assert ctx.get(in_use) == expected

    bench.simulate(main)


def test_what_names_the_upstream_port_ends_there():
    """From a slot: completions and messages by ID for the upstream port itself do not go up."""
    bench = SwitchBench(64, 2, random.Random(seed()))

    def completion(requester):
        return Tlp(*KINDS["Cpl"], completer_id=0x0300, requester_id=requester, tag=1,
                   byte_count=4).pack()

    def message(target):
        return Tlp(1, 0b10010, requester_id=0x0300, message_code=0x7F, target_id=target).pack()

    async def main(ctx):
        bench.present(ctx, 3)
        # Before a number is captured bus 0 is the root's, as ever.
        await access(bench, ctx, 1, 0, 0, type1=False)
        assert await bench.run(ctx, from_slots=[(0, completion(0x0000))]) != []
        bench.present(ctx, 0)
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        await access(bench, ctx, 1, 0, 0, type1=False)
        for make in (completion, message):
            for target in (0x0000, 0x0101, 0x0108):
                assert await bench.run(ctx, from_slots=[(0, make(target))]) == [(UP, make(target))]
            assert await bench.run(ctx, from_slots=[(0, make(0x0100))]) == []
        assert (bench.totals["unexpected1"], bench.totals["unclaimed1"]) == (1, 1)

    bench.simulate(main, deadline=400_000)
