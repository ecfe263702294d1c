# amaranth: UnusedElaboratable=no
"""dxpu.ethernet.rgmii: pins at both edges, written from RGMII 2.0, at any phase of the clocks."""

import random
import warnings

import pytest
from amaranth import *
from amaranth.lib import io
from amaranth.sim import Simulator

from dxpu.ethernet import InBandStatus, Rgmii, RgmiiDelays, RgmiiPins
from dxpu_sim.ethernet.ddr import WithDdrModels
from tests.support.testbench import seed

#: Cycles of the receive clock after which a status must have arrived, at equal clocks.
LATENCY = InBandStatus.EQUAL + InBandStatus.BEAT + 10


def pins():
    return RgmiiPins(**{name: io.SimulationPort(direction, width, name=name)
                        for name, direction, width in [
                            ("txc", "o", 1), ("txd", "o", 4), ("tx_ctl", "o", 1),
                            ("rxd", "i", 4), ("rx_ctl", "i", 1)]})


class Swapped(Rgmii):
    """Mutant: high nibble first."""

    @staticmethod
    def encode(byte, valid, error):
        return Rgmii.encode(Cat(byte[4:], byte[:4]), valid, error)

    @staticmethod
    def decode(rising, falling):
        byte, valid, error = Rgmii.decode(rising, falling)
        return Cat(byte[4:], byte[:4]), valid, error


class Plain(Rgmii):
    """Mutant: the error bit itself at the falling edge."""

    @staticmethod
    def encode(byte, valid, error):
        return Cat(byte[:4], valid), Cat(byte[4:], error)

    @staticmethod
    def decode(rising, falling):
        return Cat(rising[:4], falling[:4]), rising[4], falling[4]


class HalfLate(Rgmii):
    """Mutant: pairs a falling edge with the rising edge behind it."""

    @staticmethod
    def decode(rising, falling):
        return Rgmii.decode(falling, rising)


def simulate(dut, *processes, rx=(8.0, 2.0), deadline_us=200):
    """``rx``: period of RXC and delay of its first rising edge, in ns. TXC is 2 ns late."""
    sim = Simulator(WithDdrModels(dut))
    sim.add_clock(8e-9)
    sim.add_clock(8e-9, phase=3.7e-9, domain="gmii_tx")
    sim.add_clock(8e-9, phase=5.7e-9, domain="gmii_txc", if_exists=True)
    sim.add_clock(rx[0] * 1e-9, phase=rx[1] * 1e-9, domain="gmii_rx")
    left = len(processes)

    def wrap(process):
        async def testbench(ctx):
            nonlocal left
            await process(ctx)
            left -= 1
        return testbench

    for process in processes:
        sim.add_testbench(wrap(process))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while left:
            sim.advance()
            assert sim._engine.now < deadline_us * 1e9, "the hardware hangs"


def make(design=Rgmii, **kwargs):
    ports = pins()
    kwargs.setdefault("delays", RgmiiDelays(tx="fpga"))
    return ports, design(ports, txc_domain="gmii_txc", **kwargs)


def phy_sends(ports, words, *, rx, skew):
    """Process of a PHY: each word is (byte, dv, er) or a status nibble, around its two edges.

    ``skew`` in ns: how long before each edge of RXC the data is there.
    """
    period, phase = rx

    async def process(ctx):
        await ctx.delay((phase + 4 * period - skew) * 1e-9)
        for word in words:
            byte, dv, er = (word * 0x11, 0, 0) if isinstance(word, int) else word
            for nibble, ctl in ((byte & 15, dv), (byte >> 4, dv ^ er)):
                ctx.set(ports.rxd.i, nibble)
                ctx.set(ports.rx_ctl.i, ctl)
                await ctx.delay(period / 2 * 1e-9)
    return process


def bytes_and_flags(rng, count):
    """All combinations of valid and error, any byte."""
    return [(rng.randrange(256), rng.randrange(2), rng.randrange(2)) for _ in range(count)]


def check_receive(design, *, rx, skew, count=200):
    rng = random.Random(seed())
    ports, dut = make(design)
    words, got = bytes_and_flags(rng, count), []

    async def collect(ctx):
        gmii = dut.gmii.rx
        while len(got) < count + 4:
            *_, byte, dv, er = await ctx.tick("gmii_rx").sample(gmii.rxd, gmii.rx_dv, gmii.rx_er)
            if got or dv or er:
                got.append((byte, dv, er))

    # What comes before is neither valid nor an error.
    words[0] = (0xA7, 1, 1)
    simulate(dut, phy_sends(ports, words, rx=rx, skew=skew), collect, rx=rx, deadline_us=10)
    assert got[:count] == words


@pytest.mark.parametrize("rx", [(8.0, 2.0), (8.0, 6.6), (7.9, 0.3)])
@pytest.mark.parametrize("skew", [1.0, 2.0, 2.9])
def test_receive(rx, skew):
    """Every byte with every control, with the data 1 ns to 3 ns before the edge."""
    check_receive(Rgmii, rx=rx, skew=skew)


@pytest.mark.parametrize("mutant", [Swapped, Plain, HalfLate])
def test_receive_mutants_are_found(mutant):
    with pytest.raises(AssertionError):
        check_receive(mutant, rx=(8.0, 2.0), skew=2.0)


def check_transmit(design, count=200):
    rng = random.Random(seed())
    ports, dut = make(design)
    words, got = bytes_and_flags(rng, count), []
    words[0] = (0xA7, 1, 1)

    async def drive(ctx):
        gmii = dut.gmii.tx
        await ctx.tick("gmii_tx").repeat(4)
        for byte, en, er in words:
            ctx.set(gmii.txd, byte)
            ctx.set(gmii.tx_en, en)
            ctx.set(gmii.tx_er, er)
            await ctx.tick("gmii_tx")

    async def phy(ctx):
        """Takes what lies around both edges of the pin TXC, from 1 ns before to 1 ns behind."""
        pin = Cat(ports.txd.o, ports.tx_ctl.o)
        await ctx.posedge(ports.txc.o[0])
        await ctx.delay(7e-9)
        while len(got) < count:
            halves = []
            for level in (0, 1):
                halves.append(ctx.get(pin))
                assert ctx.get(ports.txc.o) == level
                await ctx.delay(2e-9)
                assert ctx.get(ports.txc.o) != level
                assert ctx.get(pin) == halves[-1], "no time for the PHY"
                await ctx.delay(2e-9)
            rising, falling = halves
            word = (rising & 15) | (falling & 15) << 4, rising >> 4, (rising ^ falling) >> 4
            if got or any(word):
                got.append(word)

    simulate(dut, drive, phy, deadline_us=10)
    assert got == words


def test_transmit():
    check_transmit(Rgmii)


@pytest.mark.parametrize("mutant", [Swapped, Plain])
def test_transmit_mutants_are_found(mutant):
    with pytest.raises(AssertionError):
        check_transmit(mutant)


def test_aligned_clock():
    """A PHY that delays TXC itself gets it with the edges of the data."""
    ports = pins()
    dut = Rgmii(ports)
    changes = []

    async def drive(ctx):
        await ctx.tick("gmii_tx").repeat(4)
        for n in range(8):
            ctx.set(dut.gmii.tx.txd, 0xF0 if n % 2 else 0x0F)
            await ctx.tick("gmii_tx")

    async def watch(ctx):
        # 1 ns behind each edge of the domain, at 3.7 ns: clock and data have changed together.
        await ctx.delay((3.7 + 1) * 1e-9)
        for _ in range(24):
            changes.append((ctx.get(ports.txc.o), ctx.get(ports.txd.o)))
            await ctx.delay(4e-9)

    simulate(dut, drive, watch, deadline_us=1)
    assert [clock for clock, _ in changes] == [1, 0] * 12
    assert {(1, 0xF), (0, 0x0), (1, 0x0), (0, 0xF)} == set(changes[-12:])


def test_latency():
    """A byte around an edge of RXC is on GMII two cycles later: one of the buffer, one of ours."""
    ports, dut = make()
    seen = []

    async def phy(ctx):
        await ctx.tick("gmii_rx").repeat(4)
        await ctx.delay(6e-9)
        ctx.set(ports.rx_ctl.i, 1)

    async def watch(ctx):
        # The edge that takes it is the sixth.
        for _ in range(10):
            await ctx.tick("gmii_rx")
            seen.append(ctx.get(dut.gmii.rx.rx_dv))

    simulate(dut, phy, watch, deadline_us=1)
    assert seen.index(1) == 4 + 2


def status(link, speed, duplex):
    return link | speed << 1 | duplex << 3


@pytest.mark.parametrize("rx", [(8.0, 2.0), (8.3, 1.0), (40.0, 3.0)])
def test_status(rx):
    """Each of the 16 words is shown as it is; only a link at 1 Gb/s, full duplex, is up."""
    ports, dut = make()
    words = list(range(16))
    random.Random(seed()).shuffle(words)
    latency = int(LATENCY * rx[0] / 8) + 20

    async def watch(ctx):
        for word in words:
            await ctx.delay(latency * 8e-9)
            shown = ctx.get(dut.status)
            assert status(shown.link, shown.speed.value, shown.duplex) == word
            assert ctx.get(dut.link_up) == (word == status(1, 2, 1))
            assert ctx.get(dut.alive)

    async def phy(ctx):
        for word in words:
            ctx.set(ports.rxd.i, word)
            await ctx.delay(latency * 8e-9)

    simulate(dut, phy, watch, rx=rx, deadline_us=1000)


def test_status_is_what_lies_between_frames():
    """Frames, errors between frames and single words that differ do not change the status."""
    rng = random.Random(seed())
    ports, dut = make()
    up, words = status(1, 2, 1), []
    for _ in range(30):
        words += [up] * 12
        words += [(rng.randrange(256), 1, rng.randrange(2)) for _ in range(rng.randrange(4, 70))]
        words += [rng.randrange(16)] + [up] * rng.randrange(8)
        words += [(0xFF, 0, 1)] * rng.randrange(40)
    seen = []

    async def watch(ctx):
        while not ctx.get(dut.link_up):
            await ctx.tick()
        while len(seen) < len(words) - 200:
            await ctx.tick()
            seen.append(ctx.get(dut.link_up))

    simulate(dut, phy_sends(ports, [up] * 80 + words, rx=(8.0, 2.0), skew=2.0), watch,
             deadline_us=100)
    assert all(seen)


def test_a_receive_clock_that_stands_still_takes_the_link_down():
    """And when it runs again, the link is back. Transmission does not care."""
    ports = pins()
    dut = Rgmii(ports, rx_domain="slow", timeout=100)
    m = Module()
    m.submodules.dut = WithDdrModels(dut)
    m.domains.slow = slow = ClockDomain(reset_less=True)
    runs = Signal()
    # The simulator cannot stop a clock; a gate can.
    m.d.comb += slow.clk.eq(ClockSignal("gmii_rx") & runs)

    async def test(ctx):
        ctx.set(ports.rxd.i, status(1, 2, 1))
        for _ in range(3):
            ctx.set(runs, 1)
            await ctx.tick().repeat(LATENCY + 10)
            assert ctx.get(dut.link_up) and ctx.get(dut.alive)
            ctx.set(runs, 0)
            await ctx.tick().repeat(110)
            assert not ctx.get(dut.link_up) and not ctx.get(dut.alive)
            clock = set()
            for _ in range(20):
                await ctx.delay(1.3e-9)
                clock.add(ctx.get(ports.txc.o))
            assert clock == {0, 1}

    simulate(m, test, deadline_us=100)


def test_arguments():
    ports = pins()
    with pytest.raises(ValueError, match='tx must be "phy" or "fpga", not 2'):
        RgmiiDelays(tx=2)
    with pytest.raises(ValueError, match="rx must be"):
        RgmiiDelays(rx="both")
    with pytest.raises(ValueError, match="TXC must be delayed by its domain or its buffer if"):
        Rgmii(ports, txc_domain="other")
    with pytest.raises(ValueError, match="TXC must be delayed by its domain or its buffer if"):
        Rgmii(ports, delays=RgmiiDelays(tx="fpga"))
    with pytest.raises(ValueError, match=r"txd must have 4 pin\(s\), not 1"):
        RgmiiPins(ports.txc, ports.txc, ports.tx_ctl, ports.rxd, ports.rx_ctl)
    with pytest.raises(TypeError, match="rxd must be a port, not None"):
        RgmiiPins(ports.txc, ports.txd, ports.tx_ctl, None, ports.rx_ctl)
    with pytest.raises(ValueError, match="timeout must be an integer of at least 8, not 0"):
        Rgmii(ports, timeout=0)
