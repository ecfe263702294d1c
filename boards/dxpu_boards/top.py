"""A proxy on a board: clocks, Ethernet ports, what stands on the PCIe side, console, lights."""

from contextlib import suppress

from amaranth import *
from amaranth.build import ResourceError
from amaranth.lib import io, wiring

from dxpu.console import Console, EventRing, TlpMailbox, UartReceiver, UartTransmitter
from dxpu.console.uart import divisor
from dxpu.csr import RegisterFile, RegisterMux, connect_ports
from dxpu.endpoint.box import BoxWithGpus
from dxpu.proxy.host import HostProxy
from dxpu.stream import connect

from .board import Board, Shape
from .clocks import Clocks
from .ethernet import EthernetPorts
from .registers import BASES, PULSES, board_block, event_kinds

__all__ = ["BAUD", "Top", "top"]

#: Of the console.
BAUD = 115_200
#: What lights can mean.
MEANINGS = 4
#: Highest address of the proxy's own registers.
PROXY_SPAN = 0x8000


def top(board: Board, role: str, shape: Shape) -> "Top":
    """What :func:`dxpu_boards.build.build` makes a bitstream of."""
    return Top(board, role, shape)


class Top(Elaboratable):
    """One proxy and what makes it a device.

    A box has a soft GPU in each slot (:class:`~dxpu.endpoint.box.BoxWithGpus`); above a host is a
    :class:`~dxpu.console.TlpMailbox`, until a PCIe PHY is.

    The console, for the registers of the proxy and of :mod:`dxpu_boards.registers`, is at the
    board's UART if it has one. Lights, as many as there are:

    0. a path has a link
    1. a session is open
    2. fault, until the next reset: a session was lost, or a PHY is missing or wrong
    3. half a second on, half a second off: the core clock runs

    Parameters
    ----------
    board : Board
    role : "host" or "box"
    shape : Shape

    Raises
    ------
    ValueError
        If the board has no Ethernet port.
    """

    def __init__(self, board, role, shape):
        self._paths = len(board.paths)
        if not self._paths:
            raise ValueError(f"{board.title}: no Ethernet port that a proxy could use yet")
        self._board, self._role, self._shape = board, role, shape
        common = {"paths": self._paths, "peers": shape.peers, "streams": shape.streams}
        if role == "host":
            self._proxy = HostProxy(shape.width, ports=shape.slots, **common)
        else:
            self._proxy = BoxWithGpus(shape.width, slots=shape.slots, **common)
        self._hz = next(clock.mhz for clock in board.clocks if clock.domain == "sync") * 1e6

    def elaborate(self, platform):
        m = Module()
        board, proxy = self._board, self._proxy
        m.submodules.clocks = clocks = Clocks(board.clocks, board.pll)
        m.submodules.ethernet = ethernet = EthernetPorts(board, hz=self._hz)
        m.domains += [*clocks.domains(), *ethernet.domains()]
        m.submodules.proxy = DomainRenamer({
            **{f"gmii{n}_rx": f"rx{n}" for n in range(self._paths)},
            **{f"gmii{n}_tx": "tx" for n in range(self._paths)}})(proxy)
        m.d.comb += ethernet.reset.eq(clocks.reset)
        for ours, theirs in zip(proxy.gmii, ethernet.gmii, strict=True):
            wiring.connect(m, ours, theirs)

        ports = {"proxy": (0, PROXY_SPAN, proxy.bus)}
        if self._role == "host":
            m.submodules.mailbox = mailbox = TlpMailbox(self._shape.width)
            wiring.connect(m, proxy.upstream, mailbox.port)
            ports["tlp"] = (BASES["tlp"], mailbox.block.size, mailbox.bus)

        m.submodules.registers = file = RegisterFile(board_block(board.name, paths=self._paths))
        ports["board"] = (BASES["board"], file.block.size, file.bus)
        second = self._board_registers(m, file, ethernet)
        refused = Signal()
        m.submodules.events = events = self._events(m, ethernet, refused)
        ports["events"] = (BASES["events"], events.block.size, events.bus)
        self._console(m, platform, ports, refused)
        self._lights(m, platform, ethernet, second)
        return m

    def _board_registers(self, m, file, ethernet):
        """Returns a square wave of a second."""
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

    def _console(self, m, platform, ports, refused):
        if ("uart", 0) not in platform.resources:
            return
        uart = platform.request("uart", 0, dir="-")
        bits = divisor(self._hz, BAUD)
        m.submodules.rx_pin = rx = io.Buffer("i", uart.rx)
        m.submodules.tx_pin = tx = io.Buffer("o", uart.tx)
        m.submodules.receiver = receiver = UartReceiver(bits)
        m.submodules.transmitter = transmitter = UartTransmitter(bits)
        m.submodules.console = console = Console()
        m.submodules.mux = mux = RegisterMux({name: (base, size) for name, (base, size, _)
                                              in ports.items()})
        connect_ports(m, console.bus, mux.bus)
        for name, (_, _, bus) in ports.items():
            connect_ports(m, getattr(mux, name), bus)
        connect(m, console.o, transmitter.i)
        m.d.comb += [
            receiver.rx.eq(rx.i), tx.o.eq(transmitter.tx),
            console.i.eq(receiver.o), console.i_valid.eq(receiver.o_valid),
            refused.eq(console.stat_refused),
        ]

    def _lights(self, m, platform, ethernet, second):
        pulses, states = self._proxy.pulses, ethernet.state
        opened, lost = pulses["fabric_session_opened"], pulses["fabric_session_lost"]
        sessions = Signal(range(self._shape.peers * self._shape.streams + 1))
        fault = Signal()
        m.d.sync += sessions.eq(sessions + opened - (lost & (sessions != 0)))
        with m.If(lost | Cat(s.missing | s.unknown | s.refused for s in states).any()):
            m.d.sync += fault.eq(1)
        meanings = [Cat(s.link for s in states).any(), sessions != 0, fault, second]
        for n, (light, meaning) in enumerate(zip(_light_ports(platform), meanings, strict=False)):
            m.submodules[f"light{n}"] = pin = io.Buffer("o", light)
            m.d.comb += pin.o.eq(meaning)


def _light_ports(platform):
    """Ports of the board's lights, a pin each: LEDs, or the green ones of coloured LEDs. Not those
    whose pin is the console's."""
    for name, color in (("led", None), ("rgb_led", "g")):
        for n in range(MEANINGS):
            with suppress(ResourceError):
                port = platform.request(name, n, dir="-")
                yield getattr(port, color) if color else port

