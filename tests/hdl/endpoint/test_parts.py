"""dxpu.endpoint: parts of the soft GPU alone."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import PciePort
from dxpu.endpoint import box
from dxpu.endpoint.box import BoxWithGpus
from dxpu.endpoint.config_map import GpuIdentity, gpu_map
from dxpu.endpoint.config_space import CAUSES, EndpointConfig
from dxpu.endpoint.memory import ByteMemory
from dxpu.endpoint.reads import Reads
from dxpu.endpoint.register_map import COUNTERS, REGISTERS
from dxpu.endpoint.registers import Registers, store_index
from dxpu.endpoint.store import DEPTH, Store
from dxpu.proxy.verilog import PlainPorts
from dxpu.stream import WIDTHS, connect
from dxpu.switch.config.fields import FUNCTION_DWORDS
from dxpu.widths import Narrow, Widen
from dxpu_model.switch_function import GoldenFunction
from dxpu_tools.conversion import to_verilog
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

VRAM = 8192


def test_memory_takes_and_gives_bytes_at_any_address():
    """From a reset on, and after it was told to forget all, which takes 16 cycles."""
    rng, dut, model = random.Random(seed()), ByteMemory(64), bytearray(64)

    async def process(ctx):
        for n in range(600):
            if n % 100 == 0:
                ctx.set(dut.wipe, bool(n))
                await ctx.tick()
                ctx.set(dut.wipe, 0)
                if n:
                    model[:] = bytes(64)
                    ctx.set(dut.write_enables, 15)  # without an effect
                    await ctx.tick().repeat(15)
                    assert ctx.get(dut.wiping)
                    ctx.set(dut.write_enables, 0)
                await ctx.tick().until(~dut.wiping)
            address, enables = rng.randrange(64), rng.getrandbits(4)
            data, where = rng.getrandbits(32), rng.randrange(64)
            ctx.set(dut.write_address, address)
            ctx.set(dut.write_data, data)
            ctx.set(dut.write_enables, enables)
            if together := rng.random() < 0.5:  # with the write, mostly of the same bytes
                where = (address + rng.randrange(-5, 6)) % 64
                ctx.set(dut.read_address, where)
                ctx.set(dut.read_enable, 1)
            await ctx.tick()
            ctx.set(dut.write_enables, 0)
            for n in range(4):
                if enables >> n & 1:
                    model[(address + n) % 64] = data >> 8 * n & 0xff
            if not together:
                ctx.set(dut.read_address, where)
                ctx.set(dut.read_enable, 1)
                await ctx.tick()
            ctx.set(dut.read_enable, 0)
            ctx.set(dut.read_address, rng.randrange(64))
            found = ctx.get(dut.read_data).to_bytes(4, "little")
            assert found == bytes(model[(where + n) % 64] for n in range(4))
            await ctx.tick()
            assert ctx.get(dut.read_data).to_bytes(4, "little") == found
    simulate(dut, process)


@pytest.mark.parametrize("size", [4, 12, "64"])
def test_memory_arguments(size):
    with pytest.raises(ValueError, match=f"a power of two of at least 8, not {size!r}"):
        ByteMemory(size)


@pytest.mark.parametrize("width", WIDTHS)
def test_packets_keep_their_dwords_through_both_widths(width):
    rng, m, came = random.Random(seed()), Module(), []
    m.submodules.narrow, m.submodules.widen = narrow, widen = Narrow(width), Widen(width)
    connect(m, narrow.o, widen.i)
    packets = [Packet(rng.randbytes(4 * rng.choice([1, 2, 3, rng.randrange(1, 70)])),
                      discard=rng.random() < 0.1) for _ in range(40)]
    dropped = []
    good = [p for p in packets if not p.discard]
    simulate(m, drive_packets(narrow.i, packets, rng=rng, density=0.8),
             collect_packets(widen.o, len(good), came, rng=rng, density=0.7, discarded=dropped),
             background=[check_stream(narrow.o, "narrow"), check_stream(widen.o, "wide")])
    assert [p.data for p in came] == [p.data for p in good]


def test_the_description_of_the_configuration_space_is_sound():
    fmap = gpu_map(GpuIdentity(serial=0x1_0000_0002), vram_bytes=VRAM)
    seen = [0] * FUNCTION_DWORDS
    for r in fmap.registers:
        assert r.offset % (r.bits // 8) == 0
        for f in r.fields:
            place = f.mask << 8 * (r.offset % 4)
            assert f.lsb + f.width <= r.bits and not seen[r.offset // 4] & place, (r.name, f.name)
            assert f.reset >> f.width == 0
            seen[r.offset // 4] |= place
    assert all((r, f) in {(r.name, f.name) for r in fmap.registers for f in r.fields}
               for r, f in CAUSES)
    image, found = fmap.reset_image(), []
    pointer = image[13] & 0xff
    while pointer:
        found.append(image[pointer // 4] & 0xff)
        pointer = image[pointer // 4] >> 8 & 0xff
    assert found == [0x01, 0x05, 0x11, 0x10]
    assert image[0x40] == 0x10C1_0003 and image[0x41:0x43] == [2, 1]
    # Secondary PCI Express (7.7.3), as the link has 8.0 GT/s: no lane was told presets.
    assert image[0x43] == 0x0001_0019 and image[0x44:0x46] == [0, 0]
    assert image[0x46:0x4F] == [0x7F00_7F00] * 8 + [0]


def test_configuration_space_against_the_golden_one():
    """Random accesses and errors; Function Level Resets keep what they must, cold ones nothing."""
    rng = random.Random(seed())
    dut = EndpointConfig(GpuIdentity(), vram_bytes=VRAM)
    cold, warm = Signal(), Signal()
    m = Module()
    m.submodules.dut = ResetInserter(cold | warm)(dut)
    m.d.comb += dut.cold.eq(cold)
    golden = GoldenFunction(0, gpu_map(vram_bytes=VRAM))

    async def process(ctx):
        for _ in range(1500):
            dword = rng.choice([*range(0x68 // 4), rng.randrange(FUNCTION_DWORDS), 0x6c // 4,
                                0x6c // 4, 1])
            ctx.set(dut.register, dword)
            write, enables, data = rng.random() < 0.5, rng.getrandbits(4), rng.getrandbits(32)
            if dword == 0x6c // 4:
                data &= ~0x8000
            for signal, value in ((dut.write, write), (dut.enables, enables), (dut.data, data),
                                  (dut.target_id, 0x1234)):
                ctx.set(signal, value)
            if write:
                golden.write(dword, enables, data)
            if rng.random() < 0.1:
                (register, field), causes = rng.choice(list(CAUSES.items()))
                ctx.set(dut.errors, {rng.choice(causes): 1})
                golden_errors = [key for key, by in CAUSES.items()
                                 if any(ctx.get(dut.errors[cause]) for cause in by)]
                for key in golden_errors:
                    golden.set_status(*key)
            await ctx.tick()
            ctx.set(dut.errors, {})
            ctx.set(dut.write, 0)
            assert ctx.get(dut.value) == golden.read(dword), (hex(4 * dword), write, hex(data))
            if write:
                assert ctx.get(dut.state.requester_id) == 0x1230
            if (kind := rng.random()) < 0.01:
                payload = golden.get("Device Control", "Max_Payload_Size")
                ctx.set(cold if kind < 0.005 else warm, 1)
                await ctx.tick()
                ctx.set(cold, 0)
                ctx.set(warm, 0)
                golden.reset()
                if kind >= 0.005:
                    golden.fields["Device Control", "Max_Payload_Size"] = payload
                    assert ctx.get(dut.state.requester_id) == 0x1230
                else:
                    assert ctx.get(dut.state.requester_id) == 0
    simulate(m, process)


def test_a_function_level_reset_is_told_once():
    dut, told = EndpointConfig(GpuIdentity(), vram_bytes=VRAM), []

    async def process(ctx):
        ctx.set(dut.register, 0x6c // 4)
        for data, enables in ((0x8000, 0b0010), (0x8000, 0b0001), (0x7fff, 0b1111), (0, 15)):
            ctx.set(dut.data, data)
            ctx.set(dut.enables, enables)
            ctx.set(dut.write, 1)
            await ctx.tick()
            ctx.set(dut.write, 0)
            told.append(ctx.get(dut.function_reset))
            await ctx.tick()
            told.append(ctx.get(dut.function_reset))
    simulate(dut, process)
    assert told == [1, 0, 0, 0, 0, 0, 0, 0]


def test_registers_take_what_they_say_they_take():
    """What is there is readable, nothing else; a write that is refused changes nothing."""
    rng = random.Random(seed())
    dut = Registers(GpuIdentity(), vram_bytes=VRAM, tags=8)
    names = {offset: name for name, offset in (REGISTERS | COUNTERS).items()}
    refused = {"MAGIC", "VERSION", "SERIAL_LOW", "SERIAL_HIGH", "STATUS", "VRAM_MIB"}
    there = {*names, *range(0x100, 0x140, 4), *range(0x8000, 0x8080, 4), 0xc000, 0xc004}

    m = Module()
    m.submodules.dut, m.submodules.store = dut, (store := Store(1))
    m.d.comb += [
        store.write.eq(dut.store_write), store.store_index.eq(dut.store_index),
        store.value.eq(dut.store_value), store.word_reader[0].ask.eq(1),
        store.word_reader[0].word_index.eq(store_index(dut.read_address)),
        dut.stored.eq(store.data)]

    async def look(ctx, address):
        ctx.set(dut.read_address, address)
        await ctx.tick()
        return ctx.get(dut.read_data)

    async def process(ctx):
        for address in {*there, *range(0, 0x400, 4), *range(0x7f00, 0x8200, 4), 0xbffc, 0xc008}:
            await look(ctx, address)
            assert ctx.get(dut.readable) == (address in there), hex(address)
        for _ in range(300):
            address = rng.choice(sorted(names))
            value = rng.choice([rng.getrandbits(32), 1 << rng.randrange(32), rng.randrange(12), 0])
            name, before = names[address], await look(ctx, address)
            ctx.set(dut.write_address, address)
            ctx.set(dut.write_data, value)
            ctx.set(dut.write, 1)
            await ctx.tick()
            ctx.set(dut.write, 0)
            takes = not ctx.get(dut.refused)
            ctx.set(dut.write_data, rng.getrandbits(32))
            await ctx.tick()
            now = await look(ctx, address)
            power = not value & value - 1
            head, doorbell = [await look(ctx, REGISTERS[r]) for r in ("HEAD", "DOORBELL")]
            expected = {
                **dict.fromkeys(("SCRATCH", "DOORBELL", "RING_HIGH", "FENCE_HIGH"), value),
                "RING_LOW": value & ~31, "FENCE_LOW": value & ~3, "TAGS": min(max(value, 1), 8),
                "READ_SIZE": value if power and 4 <= value <= 4096 else None,
                "RING_SIZE": max(value, 1) if power and value <= 65536 else None,
                "INTERRUPT": 0 if value < 8 else None, "HEAD": now if takes else None,
                **dict.fromkeys(("ERROR", "UNSUPPORTED", *COUNTERS), 0),
            }.get(name)
            assert takes == (expected is not None) and takes <= (name not in refused), name
            assert now == (expected if takes else before), (name, hex(value))
            if name == "HEAD" and takes:
                assert now == value
                ctx.set(dut.write_address, REGISTERS["DOORBELL"])
                ctx.set(dut.write_data, value)
                ctx.set(dut.write, 1)
                await ctx.tick()
                ctx.set(dut.write, 0)
                await ctx.tick()
    simulate(m, process)


def test_the_first_reader_of_the_store_has_precedence_and_none_meets_a_write():
    rng, dut, model = random.Random(seed()), Store(3), {}

    async def process(ctx):
        expected = None
        for _ in range(2000):
            write, index, value = rng.random() < 0.5, rng.randrange(DEPTH), rng.getrandbits(32)
            ctx.set(dut.write, write)
            ctx.set(dut.store_index, index)
            ctx.set(dut.value, value)
            asks = [(rng.random() < 0.3, rng.choice([index, rng.randrange(DEPTH)]))
                    for _ in dut.word_reader]
            for reader, (ask, where) in zip(dut.word_reader, asks, strict=True):
                ctx.set(reader.ask, ask)
                ctx.set(reader.word_index, where)
            first = next((n for n, (ask, _) in enumerate(asks) if ask and not write), None)
            assert [ctx.get(reader.granted) for reader in dut.word_reader] == [
                n == first for n in range(3)]
            if first is not None:
                expected = model.get(asks[first][1], 0)
            await ctx.tick()
            if write:
                model[index] = value
            assert expected is None or ctx.get(dut.data) == expected
    simulate(dut, process)


def test_reads_expire_between_the_timeout_and_a_third_more():
    """Each for itself, and not if timeouts are disabled."""
    rng, timeout = random.Random(seed()), 90
    dut = Reads(tags=4, address_bits=12, timeout=timeout)
    begun, ended = [], []

    async def process(ctx):
        ctx.set(dut.limit, 3)
        for cycle in range(1500):
            # `free` follows after up to four cycles.
            free, changed = ctx.get(dut.free), max([*begun, *ended], default=0)
            assert free == (len(begun) - len(ended) < 3) or cycle < changed + 4
            free &= cycle >= changed + 4
            begins = free and rng.random() < 0.02
            ctx.set(dut.begins, begins)
            if begins:
                begun.append(cycle)
            if ctx.get(dut.errors.timeout):
                assert ctx.get(dut.failed)
                ended.append(cycle)
            await ctx.tick()
            ctx.set(dut.begins, 0)
        ctx.set(dut.state.timeout_off, 1)
        await ctx.tick().repeat(2 * timeout)
        while ctx.get(dut.free):
            ctx.set(dut.begins, 1)
            await ctx.tick()
            ctx.set(dut.begins, 0)
            await ctx.tick().repeat(3)
        for _ in range(4 * timeout):
            assert not ctx.get(dut.errors.timeout) and ctx.get(dut.pending)
            await ctx.tick()
    simulate(dut, process)
    assert len(ended) > 15
    waits = [end - begin for begin, end in zip(begun, ended, strict=False)]
    assert timeout <= min(waits) and max(waits) <= timeout * 4 // 3 + 6, waits


@pytest.mark.parametrize("gpus", [0, 4, -1, "1"])
def test_a_box_has_one_gpu_or_more_and_at_most_one_in_each_slot(gpus):
    with pytest.raises(ValueError, match=f"gpus must be 1 to 3, the number of slots, not {gpus!r}"):
        BoxWithGpus(64, slots=3, gpus=gpus, paths=1, peers=1, streams=1)


def test_slots_behind_the_gpus_are_empty(monkeypatch):
    """Their links stay down, in and after a reset; what is offered to them is taken, and nothing
    comes of it."""
    made = []

    class Proxy(wiring.Component):
        registers = pulses = refused = clear = None

        def __init__(self, width, *, slots, paths):
            super().__init__({"slot": Out(PciePort(width)).array(slots), "reset": Out(slots),
                              "wipes": In(slots)})
            made.append(self)

        def elaborate(self, platform):
            return Module()

    monkeypatch.setattr(box, "BoxProxy", Proxy)
    dut = BoxWithGpus(32, slots=3, gpus=2, gpu={"vram_bytes": 4096})
    proxy, = made

    async def process(ctx):
        for reset in (0b000, 0b111, 0b000):
            ctx.set(proxy.reset, reset)
            await ctx.tick().repeat(20 + 4096 // 4)  # all is forgotten
            up = [ctx.get(slot.link_up) for slot in proxy.slot]
            assert up == 2 * [not reset] + [0]
        empty = proxy.slot[2]
        for stream in (empty.tx_p, empty.tx_np, empty.tx_cpl):
            ctx.set(stream.valid, 1)
            ctx.set(stream.payload.first, 1)
            ctx.set(stream.payload.last, 1)
        for _ in range(200):
            await ctx.tick()
            assert all(ctx.get(stream.ready) for stream in (
                empty.tx_p, empty.tx_np, empty.tx_cpl))
            assert not ctx.get(empty.rx.valid) and not ctx.get(empty.link_up)

    simulate(dut, process)


@pytest.mark.long
def test_a_box_with_gpus_becomes_verilog():
    """With nothing outside but Ethernet and the register bus."""
    dut = BoxWithGpus(32, slots=2, paths=1, peers=1, streams=1, gpu={"vram_bytes": 4096})
    text = to_verilog(PlainPorts(dut), name="box")
    assert "module box(" in text and text.count("module \\box.proxy.gpu") >= 2
    assert {name.split("_")[0] for name in PlainPorts(dut).signature.members} == {
        "gmii0", "bus", "links"}
