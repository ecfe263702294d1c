"""Ethernet at SFP cages of a 7 series part: 1000BASE-X by the vendor's PCS/PMA core.

The vendor's tools generate the core by :data:`TCL`; this module only knows its pins. Ref: IEEE
802.3 clauses 36, 37; AMD PG047 (1G/2.5G Ethernet PCS/PMA), shared logic in the core
"""

from amaranth import *
from amaranth.lib import io, wiring
from amaranth.lib.cdc import FFSynchronizer, PulseSynchronizer, ResetSynchronizer
from amaranth.lib.wiring import In, Out

from dxpu.ethernet import GmiiSignature, PhyState

from .ethernet import PortState

__all__ = ["CLOCK", "TCL", "PcsPma", "SfpPorts"]

#: Name of the module, and the place of its clock for the GMII.
MODULE = "pcs_pma"
CLOCK = f"*core/{MODULE}/userclk2_out"
#: Generates the core, before synthesis.
TCL = f"""\
create_ip -name gig_ethernet_pcs_pma -vendor xilinx.com -library ip -module_name {MODULE}
set_property -dict [list \\
    CONFIG.Standard 1000BASEX CONFIG.Physical_Interface Transceiver \\
    CONFIG.Auto_Negotiation true CONFIG.Management_Interface false \\
    CONFIG.RefClkRate 125 CONFIG.SupportLevel Include_Shared_Logic_in_Core] [get_ips {MODULE}]
generate_target all [get_ips {MODULE}]
synth_ip [get_ips {MODULE}]"""
#: Abilities advertised by this end: full duplex, no pause. Ref: IEEE 802.3, 37.2.1
ABILITIES = 0x0020
#: Bits of the core's vectors.
NEGOTIATE, LINK = 4, 0


class PcsPma(wiring.Component):
    """The vendor's core: GMII at 125 MHz, clocked by the core in both directions.

    Parameters
    ----------
    reference : differential port
        Reference clock of the transceiver, 125 MHz.
    tx, rx : differential port
        Data pins of the cage.

    Members
    -------
    stable : In(1)
        A clock of 200 MHz, which runs before the core's clock.
    reset : In(1)
        Asynchronous.
    signal : In(1)
        The module in the cage receives light.
    restart : In(1)
        A rising edge restarts the negotiation; in the domain of ``clock``.
    clock, locked : Out(1)
        125 MHz for the GMII, and its lock signal, which is asynchronous.
    link : Out(1)
        Negotiated and up; in the domain of ``clock``.
    txd, tx_en, tx_er, rxd, rx_dv, rx_er
        GMII, in the domain of ``clock``.
    """

    stable: In(1)
    reset: In(1)
    signal: In(1)
    restart: In(1)
    clock: Out(1)
    locked: Out(1)
    link: Out(1)
    txd: In(8)
    tx_en: In(1)
    tx_er: In(1)
    rxd: Out(8)
    rx_dv: Out(1)
    rx_er: Out(1)

    def __init__(self, reference, tx, rx):
        super().__init__()
        self._reference, self._tx, self._rx = reference, tx, rx

    def elaborate(self, platform):
        m = Module()
        status = Signal(16)
        m.d.comb += self.link.eq(status[LINK])
        m.submodules[MODULE] = Instance(
            MODULE,
            i_gtrefclk_p=self._reference.p, i_gtrefclk_n=self._reference.n,
            o_txp=self._tx.p, o_txn=self._tx.n, i_rxp=self._rx.p, i_rxn=self._rx.n,
            i_independent_clock_bufg=self.stable, i_reset=self.reset, i_signal_detect=self.signal,
            o_userclk2_out=self.clock, o_mmcm_locked_out=self.locked,
            i_gmii_txd=self.txd, i_gmii_tx_en=self.tx_en, i_gmii_tx_er=self.tx_er,
            o_gmii_rxd=self.rxd, o_gmii_rx_dv=self.rx_dv, o_gmii_rx_er=self.rx_er,
            i_configuration_vector=Const(1 << NEGOTIATE, 5),
            i_an_adv_config_vector=Const(ABILITIES, 16), i_an_restart_config=self.restart,
            o_status_vector=status)
        return m


class SfpPorts(wiring.Component):
    """The SFP cage of a board as an Ethernet port of 1 Gb/s.

    Replaces :class:`~.ethernet.EthernetPorts`: same members, with one port. The domains ``tx`` and
    ``rx0`` are both the core's clock. There is no PHY with registers: in ``state`` only ``link``
    and ``clock`` have a meaning, and ``step`` is POLL with a link and SEARCH without. ``restart``
    restarts the negotiation.

    Parameters
    ----------
    board : Board
        Board with one cage in ``sfp``, and a resource ``clk_sfp_125``.
    hz : number
        Frequency of ``sync``; not used.
    core : type
        :class:`PcsPma`, or a replacement in simulations.
    """

    def __init__(self, board, *, hz, core=PcsPma):
        self._cage, = board.sfp
        self._core = core
        super().__init__({
            "gmii": In(GmiiSignature()).array(1), "reset": In(1),
            "state": Out(PortState).array(1), "restart": In(1),
        })

    def domains(self):
        """New domains of the core's clock."""
        return [ClockDomain("tx"), ClockDomain("rx0")]

    def elaborate(self, platform):
        m = Module()
        cage = platform.request("sfp", self._cage, dir="-")
        m.submodules.core = core = self._core(
            platform.request("clk_sfp_125", 0, dir="-"), cage.tx, cage.rx)
        m.submodules.loss = loss = io.Buffer("i", cage.loss)
        m.submodules.disable = disable = io.Buffer("o", cage.tx_dis)
        m.d.comb += [
            core.stable.eq(ClockSignal("oscillator")), core.reset.eq(self.reset),
            core.signal.eq(~loss.i), disable.o.eq(0),
        ]
        for domain in ("tx", "rx0"):
            m.d.comb += ClockSignal(domain).eq(core.clock)
            m.submodules[f"{domain}_reset"] = ResetSynchronizer(
                self.reset | ~core.locked, domain=domain)

        gmii, state = self.gmii[0], self.state[0]
        m.d.comb += [
            *(getattr(core, k).eq(getattr(gmii.tx, k)) for k in ("txd", "tx_en", "tx_er")),
            *(getattr(gmii.rx, k).eq(getattr(core, k)) for k in ("rxd", "rx_dv", "rx_er")),
            state.step.eq(Mux(state.link, PhyState.POLL, PhyState.SEARCH)),
        ]
        m.submodules.link = FFSynchronizer(core.link, state.link)
        m.submodules.locked = FFSynchronizer(core.locked, state.clock)
        m.submodules.again = again = PulseSynchronizer("sync", "tx")
        m.d.comb += [again.i.eq(self.restart), core.restart.eq(again.o)]
        return m
