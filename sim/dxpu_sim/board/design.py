"""The whole top of a board, from its pins on: the design of which `dxpu build` makes a
bitstream."""

from amaranth import *
from amaranth.hdl import Fragment
from amaranth.lib import io, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from dxpu.crypto import PretendedNoise
from dxpu.ethernet import Mac, Rgmii, RgmiiDelays, RgmiiPins
from dxpu.stream import connect
from dxpu_boards.board import Shape
from dxpu_boards.factory import RESOURCE
from dxpu_boards.registry import BOARDS
from dxpu_boards.top import Top
from dxpu_sim.ethernet.ddr import WithDdrModels
from dxpu_sim.pcie.mailbox import MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock
from dxpu_sim.run.pins import connect_pins

from .pins import INPUT, PAD, PLL, simulated

__all__ = ["BoardBench"]

#: Pins of an RGMII by their names at the MAC, with the names at a PHY.
CROSSED = {"txc": "rx_clk", "txd": "rx_data", "tx_ctl": "rx_ctl", "rxd": "tx_data",
           "rx_ctl": "tx_ctl"}


class FarEnd(wiring.Component):
    """A MAC at the other end of an RGMII: frames in Python on one side, pins on the other.

    Clock domains: ``sync``; ``far_tx``; ``far_txc``, a quarter of a period later; ``far_rx``,
    clocked by the received RXC.

    Members
    -------
    py : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
    txc, txd, tx_ctl, rxd, rx_ctl
        RGMII pins.
    """

    def __init__(self, width):
        self._width = width
        super().__init__({
            "py": In(MailboxSignature()), "txc": Out(1), "txd": Out(4), "tx_ctl": Out(1),
            "rxd": In(4), "rx_ctl": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = Mac(self._width, rx_domain="far_rx", tx_domain="far_tx")
        m.submodules.port = port = TlpPort(self._width, seed=99)
        connect_pins(m, self.py, port.py)
        connect(m, port.o, mac.i)
        connect(m, mac.o, port.i_p)
        pins = {name: io.SimulationPort("i" if name.startswith("rx") else "o",
                                        len(getattr(self, name)), name=name) for name in CROSSED}
        rgmii = Rgmii(RgmiiPins(**pins), delays=RgmiiDelays(tx="fpga"), rx_domain="far_rx",
                      tx_domain="far_tx", txc_domain="far_txc")
        m.submodules.rgmii = WithDdrModels(rgmii)
        wiring.connect(m, mac.gmii, rgmii.gmii)
        for name, pin in pins.items():
            ours = getattr(self, name)
            m.d.comb += pin.i.eq(ours) if name.startswith("rx") else ours.eq(pin.o)
        return m


class SimulatedTop(Top):
    """The top, whose noise is pretended: rings of gates do not oscillate here."""

    @staticmethod
    def NOISE(*, cells):
        return PretendedNoise(seed=1)


class BoardBench(wiring.Component):
    """A stand-alone box on a board, with PLL, resets, RGMII and lights; nobody writes its
    registers.

    Path 0 has a MAC at its other end. No PHY answers over MDIO.

    Parameters
    ----------
    board : str
        Name of a board with an ECP5.
    shape : dict
        Arguments of :class:`~dxpu_boards.board.Shape`.
    faster : number
        Divisor of times, as for :class:`~dxpu_boards.top.Top`.
    keys : bool
        Sessions can be opened under keys.
    managed : bool
        Managers reach the registers by frames.

    Members
    -------
    ethernet : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
        Whole frames without FCS (whole dwords) instead of TLPs; received frames have class 0.
    button : 1
        The board's reset button is pressed.
    lights : 4
        Lights that are on, as at ``Top``.
    flash_cs, flash_sck, flash_copi, flash_cipo : 1
        Pins of the flash; undriven pins have their pull: not selected, no clock.
    state, mac : 3, 48
        Result of reading the flash.
    alone, takes : 3, 2
        ``state`` and ``takes`` of ``board.standalone``.
    """

    #: Models of the cells in the design.
    cells = PLL + PAD + INPUT
    TOP = SimulatedTop

    def __init__(self, board="versa-ecp5-5g", shape=None, *, faster=1000, keys=False,
                 managed=False):
        self._board = BOARDS[board]
        self._shape = Shape(**(shape or {"slots": 1, "peers": 1, "streams": 1}))
        self._faster, self._keys, self._managed = faster, keys, managed
        super().__init__({"ethernet": In(MailboxSignature()), "button": In(1),
                          "lights": Out(4), "flash_cs": Out(1), "flash_sck": Out(1),
                          "flash_copi": Out(1), "flash_cipo": In(1), "state": Out(3),
                          "mac": Out(48), "alone": Out(3), "takes": Out(2)})

    def elaborate(self, platform):
        m = Module()
        board, pins = self._board, simulated(self._board.platform)
        top = self.TOP(board, "box", self._shape, stand_alone=True, faster=self._faster,
                       keys=self._keys, managed=self._managed)
        m.submodules.top = Fragment.get(top, pins)
        period = round(1e12 / pins.default_clk_frequency)
        m.submodules.clock = SimClock("crystal", period_ps=period)
        m.d.comb += [
            pins.pins[pins.default_clk, 0].i.eq(ClockSignal("crystal")),
            pins.pins["uart", 0].rx.i.eq(1),
        ]
        button = pins.pins[pins.default_rst, 0]
        m.d.comb += button.i.eq(self.button ^ button.invert[0])
        for n in range(4):
            light = pins.pins["led", n]
            m.d.comb += self.lights[n].eq(light.o ^ light.invert[0])

        reader, flash = top.factory, pins.pins[RESOURCE, 0]
        m.d.comb += [
            self.flash_cs.eq(flash.cs.oe & (flash.cs.o ^ flash.cs.invert[0])),
            self.flash_copi.eq(flash.copi.o & flash.copi.oe),
            self.flash_sck.eq(reader.sck & reader.drive), flash.cipo.i.eq(self.flash_cipo),
            self.state.eq(Value.cast(reader.state)), self.mac.eq(reader.mac),
        ]
        register = top.registers.standalone
        m.d.comb += [self.alone.eq(Value.cast(register.state)),
                     self.takes.eq(Value.cast(register.takes))]

        m.submodules.far_clock = SimClock("far", phase_ps=900)
        m.submodules.far_tx_clock = SimClock("far_tx", phase_ps=1700)
        m.submodules.far_txc_clock = SimClock("far_txc", phase_ps=3700)
        phy = pins.pins["eth_rgmii", board.paths[0]]
        m.domains.far_rx = ClockDomain()
        m.d.comb += ClockSignal("far_rx").eq(phy.tx_clk.o)
        m.submodules.far_reset = ResetSynchronizer(ResetSignal("far"), domain="far_rx")
        far = FarEnd(self._shape.width)
        m.submodules.far = DomainRenamer("far")(far)
        wiring.connect(m, wiring.flipped(self.ethernet), far.py)
        for ours, theirs in CROSSED.items():
            pin, near = getattr(phy, theirs), getattr(far, ours)
            m.d.comb += near.eq(pin.o) if ours.startswith("rx") else pin.i.eq(near)
        return m
