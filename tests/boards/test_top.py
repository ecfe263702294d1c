"""dxpu_boards.top: the whole of each board, without and with its proxy."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from amaranth import *
from amaranth.build.res import ResourceManager
from amaranth.hdl import Fragment
from amaranth.lib import io
from dxpu.csr import RegisterFile
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.host import HostProxy
from dxpu_boards import factory, registers, top as board_top
from dxpu_boards.registry import BOARDS
from dxpu_boards.top import top
from tests.support.board_top_bench import SMALL, Hollow, HollowHost, Ports, simulate


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_elaborates(name, monkeypatch):
    monkeypatch.setattr(board_top, "BoxWithGpus", Hollow)
    board = BOARDS[name]
    platform, top_ = board.platform(), top(board, "box", SMALL)
    Fragment.get(top_, platform)
    asked = {name for name, _ in platform._requested}
    assert ("sfp" if board.sfp else "eth_rgmii") in asked
    assert ("uart" in asked) == (("uart", 0) in platform.resources)
    # One reader, where there is a record; its clock has no pin, but the part's own primitive.
    reads = board.record is not None
    assert (factory.RESOURCE in asked) == reads == board.is_open
    assert top_.factory is None or top_.factory.half == max(2, -(-board.core_mhz("box") // 32))


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_has_noise_for_keys(name, monkeypatch):
    monkeypatch.setattr(board_top, "BoxWithGpus", Hollow)
    board, platform = BOARDS[name], BOARDS[name].platform()
    made = Fragment.get(top(board, "box", SMALL, keys=True), platform)
    rings, = (part for part, name, _ in made.subfragments if name == "rings")
    cells = {part.type for part, _, _ in rings.subfragments if isinstance(part, Instance)}
    assert cells == ({"LUT4"} if board.is_open else {"LUT1", "LUT2"})
    assert ("rings.xdc" in platform.extra_files) == (not board.is_open)
    made = Fragment.get(top(board, "box", SMALL), board.platform())
    assert "rings" not in {name for _, name, _ in made.subfragments}


def test_a_board_without_a_record_has_no_managers():
    with pytest.raises(ValueError, match="no factory record with the key of managers"):
        top(BOARDS["genesys-2"], "box", SMALL, keys=True, managed=True)


@pytest.mark.parametrize("role", ["box", "host"])
def test_a_managed_board_has_the_key_of_its_record(role):
    """The whole of the design; the proxy's port has what the reader found."""
    board = BOARDS["versa-ecp5-5g"]
    with pytest.raises(ValueError, match="managed needs keys"):
        top(board, role, SMALL, managed=True)
    made = Fragment.get(top(board, role, SMALL, keys=True, managed=True), board.platform())
    assert "node_key" in {name for _, name, _ in made.subfragments}


@pytest.mark.parametrize("role, keys, judges", [
    ("box", True, True), ("box", False, False), ("host", True, False)])
def test_a_box_with_keys_judges_who_knocks(role, keys, judges, monkeypatch):
    """Without keys there is nothing for that: neither cipher nor key."""
    monkeypatch.setattr(board_top, "BoxWithGpus", Hollow)
    board = BOARDS["versa-ecp5-5g"]
    made = Fragment.get(top(board, role, SMALL, keys=keys), board.platform())
    parts = {name: part for part, name, _ in made.subfragments}
    inside = {name for _, name, _ in parts["stand_alone"].subfragments} if role == "box" else set()
    assert ("judge" in inside) == ("node_key" in parts) == judges


@pytest.mark.parametrize("role", ["box", "host"])
def test_versa(role):
    board = BOARDS["versa-ecp5-5g"]
    platform = board.platform()
    Fragment.get(top(board, role, SMALL), platform)
    asked = {name for name, _ in platform._requested}
    assert asked >= {"eth_rgmii", "uart", "led"}
    # Pins of the SERDES cannot be constrained.
    assert ("perst" in asked) == (role == "host") and "pcie" not in asked
    made = {signal.name: hertz
            for signal, hertz in ResourceManager.iter_signal_clock_constraints(platform)}
    assert made.get("pll_pcie") == (62.5e6 if role == "host" else None)


def test_the_proxy_gets_the_link_of_each_path(monkeypatch):
    """Bit n is that of path n, and nothing else that a port says."""
    made = []

    class States(Ports):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    async def testbench(ctx, top, asker):
        ports, = made
        assert len(ports.state) == len(top._proxy.links) == 2
        for links in (0b00, 0b01, 0b10, 0b11, 0b00):
            for n, state in enumerate(ports.state):
                link = links >> n & 1
                ctx.set(state, {"link": link, **dict.fromkeys(
                    ("clock", "missing", "unknown", "refused"), not link)})
            await ctx.delay(1e-9)
            assert ctx.get(top._proxy.links) == links

    simulate(monkeypatch, testbench, EthernetPorts=States)


def test_a_host_has_the_serial_number_of_the_factory_record(monkeypatch):
    number = Signal(32)

    async def testbench(ctx, top, asker):
        for value in (0, 0x8765_4321, 7):
            ctx.set(number, value)
            await ctx.delay(1e-9)
            assert ctx.get(top._proxy.serial) == value

    simulate(monkeypatch, testbench, role="host",
             factory_of=lambda *_: SimpleNamespace(serial=number))


@pytest.mark.parametrize("role, made", [("host", "HostProxy"), ("box", "BoxWithGpus")])
def test_serial_numbers_of_a_build(role, made, monkeypatch):
    """What is given reaches the switch, or the first GPU; what is not leaves theirs."""
    found = []

    class Shown(Hollow if role == "box" else HollowHost):
        def __init__(self, *args, identity=None, **others):
            super().__init__(*args, **others)
            found.append(identity and identity.serial)

    monkeypatch.setattr(board_top, made, Shown)
    for options in ({}, {"serial": 0x0A1B_2CFF_1234_5678}):
        top(BOARDS["versa-ecp5-5g"], role, SMALL, **options)
    assert found == [None, 0x0A1B_2CFF_1234_5678]


@pytest.mark.parametrize("shape, gpus", [
    (SMALL, 1), (replace(SMALL, slots=4), 4), (replace(SMALL, slots=4, gpus=3), 3)])
def test_soft_gpus_of_a_build(shape, gpus, monkeypatch):
    """A GPU in each slot, unless the shape has a number of them; the board's register has it."""
    found = []

    class Shown(Hollow):
        def __init__(self, *args, gpus, **others):
            super().__init__(*args, gpus=gpus, **others)
            found.append(gpus)

    monkeypatch.setattr(board_top, "BoxWithGpus", Shown)
    made = top(BOARDS["versa-ecp5-5g"], "box", shape)
    register = registers.gpu_count(gpus)
    assert found == [gpus] and made._block.find("gpus").register == register
    assert shape.numbers("box")["gpus"] == gpus and "gpus" not in shape.numbers("host")


@pytest.mark.parametrize("make, others", [
    (lambda: HostProxy(64, ports=2, peers=2, streams=1), {"tlp", "pcie", "board", "events"}),
    (lambda: BoxProxy(64, slots=2, peers=2, streams=1), {"board", "events"})])
def test_the_map_has_all_blocks(make, others):
    proxy = make()
    map = registers.map_of(proxy, BOARDS["versa-ecp5-5g"], width=64)
    assert set(map.blocks) == {*proxy.registers.blocks, *others}
    assert all(base >= board_top.PROXY_SPAN for name, (base, _) in map.blocks.items()
               if name in others)
    assert all(base + block.size <= board_top.PROXY_SPAN
               for base, block in proxy.registers.blocks.values())
    kinds = map.blocks["events"][1].find("entry[0].event").register.fields[1].values
    assert [k.name.lower() for k in kinds] == registers.event_kinds(2, proxy.pulses)


@pytest.mark.parametrize("name", BOARDS)
def test_boards_without_a_console_are_stand_alone(name, monkeypatch):
    """If nobody says anything; the register has the value at reset, and the number of the node."""
    monkeypatch.setattr(board_top, "BoxWithGpus", Hollow)
    board = BOARDS[name]
    assert board.has_console == (("uart", 0) in board.platform().resources)
    made = []

    class File(RegisterFile):
        def __init__(self, block):
            super().__init__(block)
            made.append(block)

    monkeypatch.setattr(board_top, "RegisterFile", File)
    for options, enable, node in (
            ({}, not board.has_console, 0xFFF), ({"stand_alone": False}, False, 0xFFF),
            ({"stand_alone": True, "node": 0x102}, True, 0x102)):
        Fragment.get(top(board, "box", SMALL, **options), board.platform())
        block, = [block for block in made if block.name == "board"]
        fields = block.find("standalone").register
        assert fields.unpack(fields.reset) == {
            "enable": enable, "takes": 0, "state": 0, "node": node, "host": 0}
        made.clear()


def test_only_a_box_is_stand_alone():
    board = BOARDS["versa-ecp5-5g"]
    with pytest.raises(ValueError, match="only a box can be stand-alone, not a host"):
        top(board, "host", SMALL, stand_alone=True)
    blocks = [registers.map_of(make(), board, width=64).blocks["board"][1] for make in (
        lambda: HostProxy(64, ports=2, peers=2, streams=1),
        lambda: BoxProxy(64, slots=2, peers=2, streams=1))]
    assert ["standalone" in [p.path for p in block.placed] for block in blocks] == [False, True]


def test_a_board_without_a_port():
    board = replace(BOARDS["alinx-ax7325b"], sfp=())
    with pytest.raises(ValueError, match="Alinx AX7325B: no Ethernet port that a proxy could use"):
        top(board, "box", SMALL)


def test_the_fault_light_blinks_where_sessions_need_no_key(monkeypatch):
    """And is steady after a fault, whatever sessions need."""
    lights, second = [io.SimulationPort("o", 1) for _ in range(4)], Signal()
    whole = board_top.Top._board_registers

    def registers(self, *args):
        whole(self, *args)
        return second

    monkeypatch.setattr(board_top.Top, "_board_registers", registers)

    async def testbench(ctx, top, asker):
        async def seen():
            shown = []
            for value in (0, 1, 0, 1):
                ctx.set(second, value)
                await ctx.delay(1e-6)
                shown.append(ctx.get(lights[2].o))
            return shown

        proxy = top._proxy
        assert await seen() == [0, 0, 0, 0]
        ctx.set(proxy.clear, 1)
        assert await seen() == [0, 1, 0, 1]
        ctx.set(proxy.clear, 0)
        assert await seen() == [0, 0, 0, 0]
        ctx.set(proxy.pulses["fabric_session_lost"], 1)
        await ctx.delay(1e-6)
        ctx.set(proxy.pulses["fabric_session_lost"], 0)
        for clear in (0, 1):
            ctx.set(proxy.clear, clear)
            assert await seen() == [1, 1, 1, 1]

    simulate(monkeypatch, testbench, _light_ports=lambda platform: lights)
