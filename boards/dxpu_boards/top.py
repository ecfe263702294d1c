"""A proxy on a board: clocks, Ethernet ports, PCIe side, console, lights."""

from contextlib import suppress

from amaranth import *
from amaranth.build import ResourceError
from amaranth.lib import io, wiring
from amaranth.lib.cdc import FFSynchronizer

from dxpu.bringup import StandAlone, Waits
from dxpu.console import Console, EventRing, UartReceiver, UartTransmitter
from dxpu.console.uart import divisor
from dxpu.csr import RegisterArbiter, RegisterFile, RegisterMux, connect_ports
from dxpu.endpoint.box import BoxWithGpus
from dxpu.endpoint.config_map import GpuIdentity
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.proxy.host import HostProxy
from dxpu.proxy.registers import CONTROL_BASE, IDENTITY
from dxpu.stream import connect
from dxpu.switch import Identity as SwitchIdentity
from dxpu.watchdog import Watchdog, WatchdogProbe
from dxpu_tools.identity import Identity

from .board import Board, Shape
from .clocks import Clocks
from .ethernet import EthernetPorts
from .factory import factory_of, give_pair_key, give_record, node_key_of
from .pcie import Upstream
from .registers import (
    BASES, PULSES, board_block, event_kinds, gpu_count, map_of,
    stand_alone as stand_alone_register,
)
from .rings import RingOscillators
from .sfp import SfpPorts

__all__ = ["BAUD", "Top", "top"]

#: Bit rate of the console.
BAUD = 115_200
#: Seconds without a heartbeat until the watchdog resets the board; seconds between heartbeats.
PATIENCE, PULSE = 2, 0.1
#: Number of meanings of lights.
MEANINGS = 4
#: Highest address of the proxy's own registers.
PROXY_SPAN = 0x8000


def top(board: Board, role: str, shape: Shape, **options) -> "Top":
    """The design for :func:`dxpu_boards.build.build`."""
    return Top(board, role, shape, **options)


class Top(Elaboratable):
    """One proxy with everything around it on a board.

    A box has soft GPUs in its slots (:class:`~dxpu.endpoint.box.BoxWithGpus`). Above a host is
    :class:`~dxpu_boards.pcie.Upstream`, until there is a PCIe PHY.

    The console, for the registers of the proxy and of :mod:`dxpu_boards.registers`, is at the
    board's UART, if any. A watchdog reads the proxy's identity over the same bus, and resets the
    board after 2 s without an answer. After each reset the board's factory record is read
    (:mod:`.factory`). Lights, as many as the board has:

    0. a path has a link
    1. a session is open
    2. fault, until the next reset: a session was lost, a PHY is missing or wrong, or the watchdog
    caused the last reset; it blinks as long as there is a peer whose sessions need no key
    3. half a second on, half a second off: the core clock runs

    Parameters
    ----------
    board : Board
    role : "host" or "box"
    shape : Shape
    stand_alone : bool, optional
        A box binds the slots that have a GPU to the first host heard
        (:class:`~dxpu.bringup.StandAlone`), until ``board.standalone`` is written. By default on
        boards without a console.
    node : int
        Node number of a stand-alone box; 0xFFF: the number that the host asks for.
    faster : number
        Divisor of the waits in stand-alone mode; for simulations.
    serial : int, optional
        64 bits: serial number of a host's switch, or of a box's first soft GPU, from which the
        others count on. The serial number of the factory record replaces the lower half of a
        host's.
    keys : bool
        Sessions can be opened under keys.
    managed : bool
        Managers reach all registers by frames, under the first half of the key in the
        factory record, at its address; only with ``keys``.
    observed : bool
        The proxy measures what happens (docs/reference/observe.md).
    identity : Identity
        Identity of the bitstream in registers. By default empty, so that the netlist is the same at
        each commit.

    Raises
    ------
    ValueError
        If the board has no Ethernet port, for a stand-alone host, or for managers without a factory
        record.
    """

    #: Makes the source of noise, with a stream ``o`` of bits.
    NOISE = RingOscillators

    def __init__(self, board, role, shape, *, stand_alone=None, node=NODE_UNASSIGNED, faster=1,
                 serial=None, keys=False, managed=False, observed=False, identity=Identity()):
        if stand_alone and role == "host":
            raise ValueError("only a box can be stand-alone, not a host")
        self._alone = not board.has_console if stand_alone is None else stand_alone
        self._faster = faster
        self._paths = board.path_count
        if not self._paths:
            raise ValueError(f"{board.title}: no Ethernet port that a proxy could use yet")
        if managed and board.record is None:
            raise ValueError(f"{board.title}: no factory record with the key of managers")
        self._board, self._role, self._shape, self._keys = board, role, shape, keys
        self._build, self._managed = identity.commit, managed
        gpus = shape.numbers(role).get("gpus", 0)
        extra = () if role == "host" else (
            gpu_count(gpus), stand_alone_register(self._alone, node))
        self._block = board_block(board.name, paths=self._paths, identity=identity, extra=extra)
        common = {"paths": self._paths, "peers": shape.peers, "streams": shape.streams,
                  "keys": keys, "managed": managed}
        if managed:
            common["around"] = lambda: map_of(self._proxy, board, width=shape.width)
        if serial is not None:
            kind = SwitchIdentity if role == "host" else GpuIdentity
            common["identity"] = kind(serial=serial)
        if observed:
            common["observed"] = True
        if role == "host":
            self._proxy = HostProxy(shape.width, ports=shape.slots, **common)
        else:
            #: A host can prove that it has the key of the board's record.
            self._proves = keys and board.record is not None
            if self._proves:
                common["knocks"] = True
            self._proxy = BoxWithGpus(shape.width, slots=shape.slots, gpus=gpus, **common)
        self._gpus = gpus
        self._hz = board.core_mhz(role) * 1e6

    def elaborate(self, platform):
        m = Module()
        board, proxy = self._board, self._proxy
        m.submodules.clocks = clocks = Clocks(board.clocks_of(self._role), board.pll)
        kind = SfpPorts if board.sfp else EthernetPorts
        m.submodules.ethernet = ethernet = kind(board, hz=self._hz)
        m.domains += [*clocks.domains(), *ethernet.domains()]
        m.submodules.proxy = DomainRenamer({
            **{f"gmii{n}_rx": f"rx{n}" for n in range(self._paths)},
            **{f"gmii{n}_tx": "tx" for n in range(self._paths)}})(proxy)
        m.d.comb += [ethernet.reset.eq(clocks.reset),
                     proxy.links.eq(Cat(state.link for state in ethernet.state))]
        for ours, theirs in zip(proxy.gmii, ethernet.gmii, strict=True):
            wiring.connect(m, ours, theirs)

        if self._keys:
            m.submodules.rings = rings = self.NOISE(cells=board.rings)
            connect(m, rings.o, proxy.noise)

        ports = {"proxy": (0, PROXY_SPAN, proxy.bus)}
        if self._role == "host":
            m.submodules.upstream = upstream = Upstream(board, self._shape.width, hz=self._hz)
            wiring.connect(m, proxy.upstream, upstream.port)
            ports |= {name: (BASES[name], block.size, getattr(upstream, name))
                      for name, block in upstream.blocks.items()}

        #: The board's own registers.
        self.registers = file = RegisterFile(self._block)
        m.submodules.registers = file
        ports["board"] = (BASES["board"], file.block.size, file.bus)
        second = self._board_registers(m, file, ethernet)
        #: Reader of the factory record.
        self.factory = factory_of(m, platform, board, file, self._hz)
        alone = self._stand_alone(m, file)
        self._give_keys(m, alone)
        if self._role == "host" and self.factory:
            m.d.comb += proxy.serial.eq(self.factory.serial)
        refused = Signal()
        m.submodules.events = events = self._events(m, ethernet, refused)
        ports["events"] = (BASES["events"], events.block.size, events.bus)
        probe = self._watchdog(m, platform, clocks, file)
        console = self._console(m, platform, refused)
        askers = [probe, console, alone]
        self._share(m, ports, [*(asker.bus for asker in askers if asker),
                               *([proxy.manager_bus] if self._managed else [])])
        self._lights(m, platform, ethernet, second, file.watchdog.last)
        return m

    def _stand_alone(self, m, file):
        """Make the stand-alone mode; return its :class:`StandAlone`, or ``None`` for a host."""
        if self._role == "host":
            return None
        register, shape = file.standalone, self._shape
        m.submodules.stand_alone = alone = StandAlone(
            self._proxy.registers, slots=self._gpus, paths=self._paths, streams=shape.streams,
            waits=Waits.for_pc(self._hz, faster=self._faster), keys=self._proves)
        m.d.comb += [
            alone.refused.eq(self._proxy.refused), alone.wanted.eq(register.node),
            alone.enable.eq(register.enable), alone.again.eq(register.written),
            Value.cast(register.state).eq(Value.cast(alone.state)), register.host.eq(alone.host),
        ]
        if self._proves:
            wiring.connect(m, alone.knock, self._proxy.knock)
            m.d.comb += Value.cast(register.takes).eq(Value.cast(alone.takes))
        return alone

    def _give_keys(self, m, alone):
        """Give what is in the factory record to management, and to ``alone``, the stand-alone mode,
        if they need it."""
        proves = self._role == "box" and self._proves
        if not (self._managed or proves):
            return
        key = node_key_of(m, self.factory, pair=proves)
        if self._managed:
            give_record(m, self.factory, key, self._proxy.factory, build=self._build)
        if proves:
            give_pair_key(m, self.factory, key, alone)

    def _board_registers(self, m, file, ethernet):
        """Connect the board's registers; return a square wave with a period of a second."""
        half, halves = Signal(range(int(self._hz) // 2)), Signal(33)
        m.d.sync += half.eq(half + 1)
        with m.If(half == int(self._hz) // 2 - 1):
            m.d.sync += [half.eq(0), halves.eq(halves + 1)]
        m.d.comb += [file.uptime.seconds.eq(halves[1:]),
                     ethernet.restart.eq(file.restart.phys)]
        for row, state in zip(file.path, ethernet.state, strict=True):
            m.d.comb += [
                *(getattr(row.state, k).eq(Value.cast(getattr(state, k))) for k in (
                    "link", "clock", "missing", "unknown", "refused", "step", "address")),
                row.phy.identifier.eq(state.identifier),
            ]
        return halves[0]

    def _events(self, m, ethernet, refused):
        pulses = self._proxy.pulses
        ring = EventRing(event_kinds(self._paths, pulses), unit=int(self._hz) // 1000)
        edges = []
        for n, state in enumerate(ethernet.state):
            before = Signal(name=f"link{n}_before")
            m.d.sync += before.eq(state.link)
            edges += [state.link & ~before, ~state.link & before]
        m.d.comb += ring.events.eq(Cat(
            *edges, *(pulses[name] for name in PULSES if name in pulses), refused))
        return ring

    def _watchdog(self, m, platform, clocks, file):
        """Make the watchdog; return the probe that reads the proxy's identity."""
        cycles = int(PATIENCE * platform.default_clk_frequency)
        m.submodules.watchdog = dog = DomainRenamer("oscillator")(Watchdog(cycles=cycles))
        m.submodules.probe = probe = WatchdogProbe(
            address=CONTROL_BASE, expected=IDENTITY, interval=int(PULSE * self._hz))
        # These two change only when a reset of the core begins.
        m.submodules.bites = FFSynchronizer(dog.count, file.watchdog.count)
        m.submodules.bitten = FFSynchronizer(dog.last, file.watchdog.last)
        m.d.comb += [dog.heartbeat.eq(probe.heartbeat), dog.enable.eq(file.watchdog.enable),
                     clocks.cause.eq(dog.bite)]
        return probe

    def _share(self, m, ports, askers):
        """Share one bus among ``askers``, in turn, and map the registers of ``ports``."""
        m.submodules.mux = mux = RegisterMux({name: (base, size) for name, (base, size, _)
                                              in ports.items()})
        for name, (_, _, bus) in ports.items():
            connect_ports(m, getattr(mux, name), bus)
        m.submodules.turns = turns = RegisterArbiter(len(askers))
        for asker, port in zip(askers, turns.i, strict=True):
            connect_ports(m, asker, port)
        connect_ports(m, turns.o, mux.bus)

    def _console(self, m, platform, refused):
        """Make the console at the UART; return the console, or ``None`` without a UART."""
        if ("uart", 0) not in platform.resources:
            return None
        uart = platform.request("uart", 0, dir="-")
        bits = divisor(self._hz, BAUD)
        m.submodules.rx_pin = rx = io.Buffer("i", uart.rx)
        m.submodules.tx_pin = tx = io.Buffer("o", uart.tx)
        m.submodules.receiver = receiver = UartReceiver(bits)
        m.submodules.transmitter = transmitter = UartTransmitter(bits)
        m.submodules.console = console = Console()
        connect(m, console.o, transmitter.i)
        m.d.comb += [
            receiver.rx.eq(rx.i), tx.o.eq(transmitter.tx),
            console.i.eq(receiver.o), console.i_valid.eq(receiver.o_valid),
            refused.eq(console.stat_refused),
        ]
        return console

    def _lights(self, m, platform, ethernet, second, bitten):
        pulses, states = self._proxy.pulses, ethernet.state
        # A cycle later: both come late in theirs.
        opened, lost = Signal(), Signal()
        m.d.sync += [opened.eq(pulses["fabric_session_opened"]),
                     lost.eq(pulses["fabric_session_lost"])]
        sessions = Signal(range(self._shape.peers * self._shape.streams + 1))
        fault = Signal()
        m.d.sync += sessions.eq(sessions + opened - (lost & (sessions != 0)))
        with m.If(lost | Cat(s.missing | s.unknown | s.refused for s in states).any()):
            m.d.sync += fault.eq(1)
        meanings = [Cat(s.link for s in states).any(), sessions != 0,
                    Mux(fault | bitten, 1, self._proxy.clear & second), second]
        for n, (light, meaning) in enumerate(zip(_light_ports(platform), meanings, strict=False)):
            m.submodules[f"light{n}"] = pin = io.Buffer("o", light)
            m.d.comb += pin.o.eq(meaning)


def _light_ports(platform):
    """Ports of the board's lights, a pin each: LEDs, or the green ones of coloured LEDs.

    Lights on pins of the console are left out.
    """
    for name, color in (("led", None), ("rgb_led", "g")):
        for n in range(MEANINGS):
            with suppress(ResourceError):
                port = platform.request(name, n, dir="-")
                yield getattr(port, color) if color else port

