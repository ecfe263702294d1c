"""MAC and RGMII against cocotbext-eth's RGMII PHY, extended by clock skew and in-band status.

Environment: ``FRAMES`` (per direction), ``CORE_PERIOD_PS``, ``RX_PERIOD_PS``; ``RX_SKEW_PS``, time
from a change of RXD and RX_CTL to the edge of RXC; ``TX_DELAY_PS``, delay of TXC in the PHY.
"""

import os

import cocotb
from cocotb.triggers import Edge, Timer
from cocotbext.eth import GmiiFrame, RgmiiPhy

from .mac_bench import CORE_PERIOD_PS, FRAMES, RX_PERIOD_PS, TB

RX_SKEW_PS = int(os.environ.get("RX_SKEW_PS", "2000"))
TX_DELAY_PS = int(os.environ.get("TX_DELAY_PS", "0"))
#: Bit rate: code of RXD[2:1] between frames (RGMII 2.0, table 4).
CODES = {10e6: 0, 100e6: 1, 1000e6: 2}


class StatusPins:
    """RXD and RX_CTL for the model's source, which sends no status between frames.

    The source writes data, then control, low nibble (valid) and high nibble (valid XOR error) in
    turn. ``data`` and ``control`` stand in for the pins of the source.
    """

    class Pin:
        def __init__(self, handle, write):
            self._path, self._width, self._write = handle._path, len(handle), write
            handle.value = 0

        def __len__(self):
            return self._width

        def setimmediatevalue(self, value):
            pass

        value = property(fset=lambda self, value: self._write(value))

    def __init__(self, rxd, rx_ctl):
        self._rxd, self._rx_ctl = rxd, rx_ctl
        self.data = self.Pin(rxd, self._take_data)
        self.control = self.Pin(rx_ctl, self._take_control)
        self._nibble = self._valid = self._status = 0
        self._low = True

    def _take_data(self, nibble):
        self._nibble = nibble

    def _take_control(self, control):
        if self._low:
            self._valid = control
        self._low = not self._low
        self._rxd.value = self._nibble if self._valid or control else self._status
        self._rx_ctl.value = control

    def set_status(self, *, link, speed, duplex=1):
        self._status = link | CODES[speed] << 1 | duplex << 3
        if not self._valid:
            self._rxd.value = self._status


class Phy(RgmiiPhy):
    """The PHY model, with RXC behind the data by ``RX_SKEW_PS``.

    The source changes the data with ``phy_rxc`` (falling edge: low nibble), a clock without other
    users.
    """

    def __init__(self, dut):
        self._pin = dut.rxc
        self.pins = StatusPins(dut.rxd, dut.rx_ctl)
        self.runs = True
        self._pin.value = 0
        if TX_DELAY_PS:
            cocotb.start_soon(self._delay(dut.txc, dut.phy_txc))
        super().__init__(dut.txd, dut.tx_ctl, dut.phy_txc if TX_DELAY_PS else dut.txc,
                         self.pins.data, self.pins.control, dut.phy_rxc)

    @staticmethod
    async def _delay(pin, inside):
        while True:
            await Edge(pin)
            value = pin.value
            await Timer(TX_DELAY_PS, "ps")
            inside.value = value

    async def _run_clock(self, period):
        half = round(period * 500) if self.speed < 1000e6 else RX_PERIOD_PS // 2
        edges, early = divmod(RX_SKEW_PS, half)
        early, late = Timer(early, "ps"), Timer(half - early, "ps")
        while True:
            for level in (0, 1):
                self.rx_clk.value = level
                await early
                self._pin.value = self.runs and (level + edges + 1) % 2
                await late


class RgmiiTB(TB):
    def models(self, dut):
        self.phy = Phy(dut)
        self.phy.pins.set_status(link=1, speed=1000e6)
        return self.phy.rx, self.phy.tx

    def set_speed(self, speed, **status):
        self.phy.set_speed(speed)
        self.phy.pins.set_status(**{"link": 1, "speed": speed, **status})

    def shown(self):
        value = int(self.dut.status.value)
        return value & 1, value >> 1 & 3, value >> 3

    async def link(self, up, *, us=20):
        """Wait until the link is ``up`` or down."""
        for _ in range(20 * us):
            if int(self.dut.link_up.value) == up:
                return
            await Timer(50, "ns")
        raise AssertionError(f"no link_up={up} within {us} us")


def check_sent(tb, frames):
    """Check each frame: whole, with preamble, padding and FCS, and exactly 12 bytes apart."""
    previous = None
    for sent in frames:
        frame = tb.sink.recv_nowait()
        assert bytes(frame.get_preamble()) == b"\x55" * 7 + b"\xd5"
        assert frame.check_fcs()
        assert bytes(frame.get_payload()) == sent.ljust(60, b"\0")
        assert frame.error is None or not any(frame.error)
        if previous is not None:
            assert frame.sim_time_start - previous == 12 * 8000
        previous = frame.sim_time_end
    assert tb.sink.empty()


@cocotb.test
async def line_rate(dut):
    """Both directions back to back at once, also at the highest frame rate: byte exact, gap 12."""
    tb = RgmiiTB(dut)
    await tb.start()
    up, down = [[tb.frame(60) for _ in range(FRAMES)] + [tb.frame() for _ in range(FRAMES)]
                for _ in range(2)]
    for frame in down:
        tb.source.send_nowait(GmiiFrame.from_payload(frame))
    for frame in up:
        await tb.port.send(frame)
    await tb.settle()
    assert tb.port.take() == [(frame, False) for frame in down]
    check_sent(tb, up)
    assert tb.counts() == {"tx_good": 2 * FRAMES, "rx_good": 2 * FRAMES}
    assert int(dut.link_up.value) and tb.shown() == (1, 2, 1)


@cocotb.test
async def errors(dut):
    """RX_ER on any byte, a wrong bit, and frames discarded by the core, among good frames."""
    tb = RgmiiTB(dut)
    await tb.start()
    expected, good = {"rx_good": 0, "rx_error": 0, "rx_bad_fcs": 0}, []
    for n in range(3 * FRAMES):
        body = tb.frame(tb.rng.choice([60, 64, 300]))
        frame = GmiiFrame.from_payload(body)
        kind = ("good", "error", "bad_fcs")[n % 3]
        if kind == "good":
            good.append(body)
        elif kind == "error":
            frame.error = [0] * len(frame.data)
            frame.error[tb.rng.randrange(8, len(frame.data))] = 1
        else:
            frame.data[8 + tb.rng.randrange(len(body))] ^= 1 << tb.rng.randrange(8)
        expected[f"rx_{kind}"] += 1
        tb.source.send_nowait(frame)
    given_up = [(tb.frame(400), n % 2) for n in range(4)]
    for frame, discard in given_up:
        await tb.port.send(frame, discard=discard)
    await tb.settle()
    assert [frame for frame, discard in tb.port.take() if not discard] == good
    for _, discard in given_up:
        frame = tb.sink.recv_nowait()
        assert bool(frame.error and any(frame.error)) == bool(discard)
        assert frame.check_fcs() != bool(discard)
    assert tb.counts() == {**expected, "tx_good": 2, "tx_aborted": 2}


@cocotb.test
async def speeds(dut):
    """10 and 100 Mb/s: status shown, link not up, no frame arrives. Then 1 Gb/s again."""
    tb = RgmiiTB(dut)
    await tb.start()
    await tb.link(1)
    for good, speed in enumerate((100e6, 10e6), 1):
        tb.set_speed(speed)
        await tb.link(0, us=60)
        assert tb.shown() == (1, CODES[speed], 1)
        before = tb.counts()
        tb.source.send_nowait(GmiiFrame.from_payload(tb.frame(60)))
        await tb.source.wait()
        await Timer(5, "us")
        assert tb.port.take() == [] and tb.counts().get("rx_good") == before.get("rx_good")

        tb.set_speed(1000e6)
        await tb.link(1)
        frame = tb.frame(128)
        tb.source.send_nowait(GmiiFrame.from_payload(frame))
        await tb.settle()
        assert tb.port.take()[-1] == (frame, False) and tb.counts()["rx_good"] == good


@cocotb.test
async def status_changes(dut):
    """Status changes while frames come back to back: each change is shown, and no frame is lost."""
    tb = RgmiiTB(dut)
    await tb.start()
    frames = [tb.frame(60) for _ in range(4 * FRAMES)]
    for frame in frames:
        tb.source.send_nowait(GmiiFrame.from_payload(frame))
    await tb.link(1)
    for link, duplex in ((0, 1), (1, 1), (1, 0), (1, 1)):
        tb.phy.pins.set_status(link=link, speed=1000e6, duplex=duplex)
        await tb.link(link and duplex)
        assert tb.shown() == (link, 2, duplex)
    assert not tb.source.idle()
    await tb.settle()
    assert tb.port.take() == [(frame, False) for frame in frames]
    assert tb.counts() == {"rx_good": len(frames)}


@cocotb.test
async def clock_stops(dut):
    """RXC stops in a frame: the link falls, transmission goes on, and reception resumes later."""
    tb = RgmiiTB(dut)
    await tb.start()
    await tb.link(1)
    tb.source.send_nowait(GmiiFrame.from_payload(tb.frame(400)))
    await Timer(1500, "ns")
    tb.phy.runs = False
    # The timeout is 8192 cycles of the core.
    await tb.link(0, us=10 + 9 * CORE_PERIOD_PS // 1000)
    assert not int(dut.alive.value)
    up = [tb.frame(60) for _ in range(3)]
    for frame in up:
        await tb.port.send(frame)
    await Timer(3, "us")
    check_sent(tb, up)
    tb.phy.runs = True
    await tb.link(1)
    down = [tb.frame(128) for _ in range(3)]
    for frame in down:
        tb.source.send_nowait(GmiiFrame.from_payload(frame))
    await tb.settle()
    assert [frame for frame, discard in tb.port.take() if not discard] == down
    assert tb.counts()["rx_good"] == 3 and tb.counts()["tx_good"] == 3
