"""dxpu_boards.top: the whole of each board, without and with its proxy."""

import pytest
from amaranth import *
from amaranth.hdl import Fragment
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import RegisterPort
from dxpu.ethernet import GmiiSignature
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.host import HostProxy
from dxpu_boards import registers, top as board_top
from dxpu_boards.board import Shape
from dxpu_boards.registry import BOARDS
from dxpu_boards.top import top

SMALL = Shape(slots=1, peers=1, streams=1)
USABLE = [name for name, board in BOARDS.items() if board.paths]


class Hollow(wiring.Component):
    """Has the interface of a box with GPUs and nothing inside, which takes long to elaborate."""

    def __init__(self, width, *, slots, paths, peers, streams):
        self.pulses = {name: Signal(name=name) for name in registers.PULSES}
        super().__init__({
            "gmii": Out(GmiiSignature()).array(paths), "bus": In(RegisterPort())})

    def elaborate(self, platform):
        return Module()


@pytest.mark.parametrize("name", USABLE)
def test_every_board_elaborates(name, monkeypatch):
    monkeypatch.setattr(board_top, "BoxWithGpus", Hollow)
    board = BOARDS[name]
    platform = board.platform()
    Fragment.get(top(board, "box", SMALL), platform)
    asked = {name for name, _ in platform._requested}
    assert "eth_rgmii" in asked
    assert ("uart" in asked) == (("uart", 0) in platform.resources)


@pytest.mark.parametrize("role", ["box", "host"])
def test_versa(role):
    board = BOARDS["versa-ecp5-5g"]
    platform = board.platform()
    Fragment.get(top(board, role, SMALL), platform)
    assert {name for name, _ in platform._requested} >= {"eth_rgmii", "uart", "led"}


@pytest.mark.parametrize("make, others", [
    (lambda: HostProxy(64, ports=2, peers=2, streams=1), {"tlp", "board", "events"}),
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


def test_a_board_without_a_port():
    with pytest.raises(ValueError, match="Alinx AX7325B: no Ethernet port that a proxy could use"):
        top(BOARDS["alinx-ax7325b"], "box", SMALL)
