"""A box proxy whose Ethernet frames are in Python, for tests of a host in software."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.crypto import PretendedNoise
from dxpu.ethernet import Mac
from dxpu.proxy import BoxProxy
from dxpu.stream import connect
from dxpu_sim.pcie.mailbox import MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock
from dxpu_sim.run.pins import connect_pins
from dxpu_sim.system.regbox import RegisterBox, RegisterBoxSignature

__all__ = ["BoxBench"]


class BoxBench(wiring.Component):
    """A :class:`~dxpu.proxy.BoxProxy` with one path, at 125 MHz, and a MAC at the other end of the
    path.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots : int
        Number of slots.
    peers, streams : int
        Sessions of the box.
    keys : bool
        They can be opened under keys. The box's noise is pretended, and goes on in a restart.
    observed : bool
        The box measures what happens.

    Members
    -------
    ethernet : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
        Whole frames without FCS (whole dwords) instead of TLPs; received frames have class 0.
    gpu0, gpu1, ... : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
        PCIe ports of the slots.
    bus : :class:`~dxpu_sim.system.regbox.RegisterBoxSignature`
    restart : 1
        Reset of the box, including both sides of its MAC.
    """

    def __init__(self, width=64, *, slots=2, peers=2, streams=1, keys=False,
                 observed=False):
        self._width, self._slots, self._keys = width, slots, keys
        self._box = BoxProxy(width, slots=slots, paths=1, peers=peers, streams=streams,
                             keys=keys, observed=observed)
        #: Register map of the box.
        self.map = self._box.registers
        super().__init__({
            "ethernet": In(MailboxSignature()),
            **{f"gpu{n}": In(MailboxSignature()) for n in range(slots)},
            "bus": In(RegisterBoxSignature()),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.core_clock = SimClock("sync")
        m.submodules.ethernet_clock = SimClock("eth", phase_ps=1700)
        box = self._box
        restart, restart_eth = Signal(), Signal()
        m.d.sync += restart.eq(self.restart)
        m.d.eth += restart_eth.eq(self.restart)
        m.submodules.box = ResetInserter({"sync": restart, "eth": restart_eth})(
            DomainRenamer({"gmii0_rx": "eth", "gmii0_tx": "eth"})(box))
        if self._keys:
            m.submodules.noise = noise = PretendedNoise(seed=1)
            connect(m, noise.o, box.noise)
        m.submodules.registers = registers = RegisterBox()
        connect_pins(m, self.bus, registers.py)
        wiring.connect(m, registers.bus, box.bus)
        m.d.comb += box.wipes.eq(-1)
        for n in range(self._slots):
            m.submodules[f"gpu{n}_port"] = mailbox = TlpPort(self._width, seed=n + 1)
            connect_pins(m, getattr(self, f"gpu{n}"), mailbox.py)
            port = box.slot[n]
            connect(m, mailbox.o, port.rx)
            m.d.comb += [port.link_up.eq(mailbox.link_up), mailbox.reset.eq(box.reset[n])]
            for cls in ("p", "np", "cpl"):
                connect(m, getattr(port, f"tx_{cls}"), getattr(mailbox, f"i_{cls}"))
        m.submodules.mac = mac = Mac(self._width, rx_domain="eth", tx_domain="eth")
        m.submodules.ethernet_port = frames = TlpPort(self._width, seed=99)
        connect_pins(m, self.ethernet, frames.py)
        connect(m, frames.o, mac.i)
        connect(m, mac.o, frames.i_p)
        m.d.comb += [
            *(getattr(box.gmii[0].rx, theirs).eq(getattr(mac.gmii.tx, ours))
              for ours, theirs in (("txd", "rxd"), ("tx_en", "rx_dv"), ("tx_er", "rx_er"))),
            *(getattr(mac.gmii.rx, ours).eq(getattr(box.gmii[0].tx, theirs))
              for theirs, ours in (("txd", "rxd"), ("tx_en", "rx_dv"), ("tx_er", "rx_er"))),
        ]
        return m
