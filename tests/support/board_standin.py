"""A small top for any board: a counter in each clock domain, all in one LED."""

from amaranth import *
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer
from amaranth.lib.memory import Memory

from dxpu_boards.board import request_rgmii
from dxpu_boards.clocks import Clocks


class StandIn(Elaboratable):
    """Uses the clocks, the receive clock and the pins of each RGMII port, and an LED.

    Parameters
    ----------
    board : Board
    bits : int
        Width of the counters, which limits their speed.
    rams : int
        Number of block RAMs.
    careless : bool
        Let two bits of different domains meet without synchronisers.
    """

    def __init__(self, board, *, bits=8, rams=0, careless=False):
        self.board = board
        self.bits = bits
        self.rams = rams
        self.careless = careless

    def elaborate(self, platform):
        m = Module()
        m.submodules.clocks = clocks = Clocks(self.board.clocks, self.board.pll)
        m.domains += clocks.domains()
        domains = [clock.domain for clock in self.board.clocks]
        for path in range(len(self.board.paths)):
            domains.append(self.rgmii(m, platform, path, clocks.reset))
        tops = []
        for domain in domains:
            count = Signal(self.bits, name=f"count_{domain}")
            seen = Signal(name=f"seen_{domain}")
            m.d[domain] += count.eq(count + 1)
            if self.careless:
                m.d.comb += seen.eq(count[-1])
            else:
                m.submodules[f"cross_{domain}"] = FFSynchronizer(count[-1], seen, o_domain="sync")
            tops.append(seen)
        for n in range(self.rams):
            m.submodules[f"ram{n}"] = ram = Memory(shape=18, depth=1024, init=[])
            write, read = ram.write_port(), ram.read_port()
            m.d.sync += [write.addr.eq(write.addr + 1), write.data.eq(write.data + n),
                         read.addr.eq(read.data)]
            m.d.comb += write.en.eq(tops[0])
            tops.append(read.data[0])
        lit = Signal()
        m.d.sync += lit.eq(Cat(tops).xor())
        m.d.comb += self.led(m, platform).eq(lit)
        return m

    def rgmii(self, m, platform, path, reset):
        """Drive every pin of a port; returns the domain of its receive clock."""
        pins = request_rgmii(platform, self.board, path)
        domain = f"rx{path}"
        m.submodules[domain] = clock = io.Buffer("i", pins.rx_clk)
        m.domains += ClockDomain(domain)
        m.d.comb += ClockSignal(domain).eq(clock.i)
        m.submodules[f"{domain}_reset"] = ResetSynchronizer(reset, domain=domain)
        received = Signal(10)
        for n, port in enumerate((pins.rx_data, pins.rx_ctl)):
            m.submodules[f"{domain}_in{n}"] = pin = io.DDRBuffer("i", port, i_domain=domain)
            m.d[domain] += received[n * 8:].eq(Cat(pin.i))
        sent = Signal(8)
        m.d.tx += sent.eq(sent + 1)
        for name, port, value, to in (("clk", pins.tx_clk, 0b01, "tx90"),
                                      ("ctl", pins.tx_ctl, sent[0].replicate(2), "tx"),
                                      ("data", pins.tx_data, sent, "tx")):
            m.submodules[f"{domain}_{name}"] = pin = io.DDRBuffer("o", port, o_domain=to)
            m.d.comb += Cat(pin.o).eq(value)
        for name in ("rst", "mdc", "mdio"):
            if (port := getattr(pins, name)) is not None:
                m.submodules[f"{domain}_{name}"] = pin = io.Buffer("o", port)
                m.d.comb += pin.o.eq(received.xor() if name == "mdc" else 0)
        return domain

    def led(self, m, platform):
        """Choose the LED, or an LED of the board, and connect the counters."""
        name, pin = next((name, pin) for name, pin in (
            ("led", None), ("rgb_led", "r"), ("rgb_leds_muxed", "leds")) if (name, 0)
            in platform.resources)
        port = platform.request(name, 0, dir="-")
        m.submodules.led = buffer = io.Buffer("o", getattr(port, pin) if pin else port)
        return buffer.o[0]
