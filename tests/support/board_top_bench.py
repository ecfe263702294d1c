"""Stand-ins for the slow parts of a board's top, and for parts that cannot be simulated."""

from dataclasses import replace

from amaranth import *
from amaranth.build import ResourceError
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from dxpu.attach import PciePort
from dxpu.csr import RegisterPort
from dxpu.ethernet import GmiiSignature
from dxpu.fabric.opening.types import KnockPort
from dxpu.fabric.receive.types import Refused
from dxpu.proxy.box import BoxProxy
from dxpu_boards import registers, top as board_top
from dxpu_boards.board import Shape
from dxpu_boards.clocks import Resets
from dxpu_boards.ethernet import PortState
from dxpu_boards.registry import BOARDS
from tests.support.testbench import access

VERSA = BOARDS["versa-ecp5-5g"]
SMALL = Shape(slots=1, peers=1, streams=1)


class Hollow(wiring.Component):
    """Interface of a box with GPUs, without its content, which takes long to elaborate."""

    def __init__(self, width, *, slots, gpus, paths, peers, streams, keys, managed=False,
                 knocks=False):
        self.pulses = {name: Signal(name=name) for name in registers.PULSES}
        self.registers = BoxProxy(width, slots=slots, paths=paths, peers=peers, streams=streams,
                                  keys=keys).registers
        self.refused, self.clear = Signal(Refused), Signal()
        super().__init__({
            "gmii": Out(GmiiSignature()).array(paths), "links": In(paths),
            "bus": In(RegisterPort()), **({"noise": In(stream.Signature(1))} if keys else {}),
            **({"knock": In(KnockPort())} if knocks else {})})

    def elaborate(self, platform):
        return Module()


class HollowHost(wiring.Component):
    """Interface of a host proxy, without its content."""

    def __init__(self, width, *, ports, paths, peers, streams, keys, managed=False):
        self.pulses = {name: Signal(name=name) for name in registers.PULSES}
        self.serial, self.clear = Signal(32), Signal()
        super().__init__({
            "upstream": Out(PciePort(width)), "bus": In(RegisterPort()),
            "gmii": Out(GmiiSignature()).array(paths), "links": In(paths)})

    def elaborate(self, platform):
        return Module()


class HollowUpstream(wiring.Component):
    """Nothing above a host."""

    blocks = {}

    def __init__(self, board, width, *, hz):
        super().__init__({"port": In(PciePort(width))})

    def elaborate(self, platform):
        return Module()


class Clocks(wiring.Component):
    """Resets of clocks made by the simulator."""

    def __init__(self, *_):
        super().__init__({"cause": In(1), "reset": Out(1)})

    def domains(self):
        return [ClockDomain(name) for name in ("sync", "tx", "oscillator")]

    def elaborate(self, platform):
        m = Module()
        m.submodules.resets = resets = Resets(["sync", "tx"])
        m.d.comb += [resets.cause.eq(self.cause), self.reset.eq(resets.reset)]
        return m


class Ports(wiring.Component):
    """Ethernet ports without traffic."""

    def __init__(self, board, *, hz):
        super().__init__({"gmii": In(GmiiSignature()).array(2), "reset": In(1),
                          "state": Out(PortState).array(2), "restart": In(2)})

    def domains(self):
        return []

    def elaborate(self, platform):
        return Module()


class Platform:
    """A board without resources. Its oscillator has ``default_clk_frequency`` cycles per second of
    the watchdog.
    """

    resources = {}
    default_clk_frequency = 1000

    def request(self, *args, **options):
        raise ResourceError


class Asker(wiring.Component):
    """Stand-in for the console."""

    bus: Out(RegisterPort())

    def elaborate(self, platform):
        return Module()

    async def read(self, ctx, address, write=None):
        """Access a register; returns the data."""
        data, error = await access(ctx, self.bus, address, write)
        assert not error
        return data


def simulate(monkeypatch, testbench, *, role="box", box=Hollow, shape=SMALL, background=(),
             **parts):
    """Simulate the top of the Versa without its flash, with ``box`` or :class:`HollowHost` as its
    proxy.

    Parameters
    ----------
    role : "box" or "host"
    testbench : async function of the context, the top, and an :class:`Asker` for its registers
    background : async functions of the context and the top, which end with the test bench
    parts
        Further replacements in :mod:`dxpu_boards.top`.
    """
    asker = Asker()

    def console(self, m, *_):
        m.submodules.asker = asker
        return asker

    for name, value in {"Clocks": Clocks, "EthernetPorts": Ports, "BoxWithGpus": box,
                        "HostProxy": HollowHost, "Upstream": HollowUpstream, **parts}.items():
        monkeypatch.setattr(board_top, name, value)
    monkeypatch.setattr(board_top.Top, "_console", console)
    top = board_top.top(replace(VERSA, record=None), role, shape)
    sim = Simulator(Fragment.get(top, Platform()))
    sim.add_clock(1e-8, domain="oscillator")
    sim.add_clock(16e-9)

    async def process(ctx):
        await testbench(ctx, top, asker)

    def endless(other):
        async def process(ctx):
            await other(ctx, top)
        return process

    sim.add_testbench(process)
    for other in background:
        sim.add_testbench(endless(other), background=True)
    sim.run()
