"""Brings a PHY up over MDIO, and repairs the set-up when the PHY loses it (IEEE 802.3, 22.2.4, 28,
40.5).
"""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .inband import LinkStatus
from .mdio import MdioAccess, MdioPort, MdioSharing
from .phy_registers import CONTROL, IDENTIFIER, LinkReader, SettingsWriter
from .phys import ALL
from .rgmii import RgmiiDelays

__all__ = ["PhyBringUp", "PhyState"]

#: Control register: autonegotiation at 1 Gb/s, full duplex, is enabled and begins anew.
RENEGOTIATE, SOFT_RESET = 0x1340, 0x8000


class PhyState(enum.Enum, shape=2):
    """Phase of a :class:`PhyBringUp`."""

    #: The PHY is held in reset, or settles after the reset.
    RESET = 0
    #: No PHY answered in the last round, or the PHY is in a software reset.
    SEARCH = 1
    #: Registers were written in the last round; the PHY negotiates.
    SET_UP = 2
    #: The link is polled.
    POLL = 3


class PhyBringUp(wiring.Component):
    """Sequencer that resets a PHY, identifies it, writes its settings, and reports the link.

    The sequencer pulses ``reset``, waits ``settle_us``, and then repeats the same round every
    ``poll_us``:

    1. Look for a PHY: its control register can be read, and the PHY is in no software reset.
    Without an answer, and without a fixed ``address``, the next round tries the next address.
    2. Read the identifier, which selects the settings. An unknown PHY gets the settings of the
    standard only.
    3. Read every register of the settings, and write each that differs.
    4. After a write, restart autonegotiation, preceded by a software reset if the settings of the
    PHY need one; the round ends. Otherwise read link, speed and duplex.

    A PHY that was reset from outside, or unplugged, is set up again within two rounds after the PHY
    answers. No behaviour of a PHY stops the sequencer. After :attr:`MISSES` rounds in a row without
    a PHY, ``reset`` is pulsed again. If registers had to be written in three rounds in a row, the
    PHY does not keep the settings: ``refused`` rises, and the link is reported unchanged.

    A round takes up to some 70 MDIO frames of 26 us each, besides ``poll_us``. Every failure of the
    link is noticed, within a round.

    Parameters
    ----------
    clock_hz : number
        Frequency of ``sync``, in hertz; at least 1 MHz.
    phys : sequence of Phy
        PHYs that the board may carry.
    delays : RgmiiDelays
        Delays of the board: the object that also goes to its :class:`~dxpu.ethernet.rgmii.Rgmii`.
    address : int or None
        MDIO address, 0 to 31. None looks for the first PHY that answers.
    reset_us, settle_us, poll_us : int
        Length of the reset, time from its end to the first frame, time between rounds, in
        microseconds. The defaults are longer than any PHY here needs.
    shared_reset : bool
        The reset pin resets other PHYs, too. ``reset`` is then pulsed only at the start and by
        ``restart``.

    Members
    -------
    mdio : Out(MdioPort)
    reset : Out(1)
        Active high.
    restart : In(1)
        Begin from the reset; a pulse is enough.
    in_band_up : In(1)
        ``link_up`` of :class:`~dxpu.ethernet.rgmii.Rgmii`. Used if the PHY sends its status in
        band, as the in-band status falls faster than MDIO is polled.
    link_up : Out(1)
        The MAC may use the link: 1 Gb/s, full duplex.
    status : Out(LinkStatus)
        Link as read by MDIO. Zero without a link, without a PHY, and just after the set-up.
    state : Out(PhyState)
    address : Out(5)
        MDIO address of the PHY, or the address that is being tried.
    identifier : Out(32)
        Registers 2 (upper half) and 3 of the last PHY that answered.
    missing : Out(1)
        No PHY answered in the last round.
    unknown : Out(1)
        No PHY of ``phys`` has this identifier; delays were not set.
    refused : Out(1)
        The PHY does not keep the settings written.
    """

    #: Rounds in a row without a PHY until the PHY is reset again.
    MISSES = 64
    #: Rounds in a row in which registers are written and autonegotiation begins anew.
    REPAIRS = 2

    def __init__(self, *, clock_hz, phys=ALL, delays=None, address=None, reset_us=20_000,
                 settle_us=100_000, poll_us=10_000, shared_reset=False):
        if not clock_hz >= 1e6:
            raise ValueError(f"clock_hz must be at least 1 MHz, not {clock_hz!r}")
        if address is not None and not 0 <= address < 32:
            raise ValueError(f"address must be None or in 0..31, not {address!r}")
        for name, value in (("reset_us", reset_us), ("settle_us", settle_us),
                            ("poll_us", poll_us)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value!r}")
        self._cycles_per_us = -int(-clock_hz // 1_000_000)
        self._times = {"Reset": reset_us, "Settle": settle_us, "Pause": poll_us}
        self._phys = tuple(phys)
        self._search, self._shared_reset = address is None, shared_reset
        self._settings = SettingsWriter(self._phys, delays or RgmiiDelays())
        super().__init__({
            "mdio": Out(MdioPort()),
            "reset": Out(1), "restart": In(1), "in_band_up": In(1),
            "link_up": Out(1), "status": Out(LinkStatus), "state": Out(PhyState),
            "address": Out(5, init=address or 0), "identifier": Out(32),
            "missing": Out(1), "unknown": Out(1), "refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.settings = settings = self._settings
        m.submodules.reader = reader = LinkReader()
        m.submodules.sharing = sharing = MdioSharing(3)
        connect(m, settings.mdio, sharing.i[1])
        connect(m, reader.mdio, sharing.i[2])
        connect(m, sharing.o, flipped(self.mdio))
        access = MdioAccess(m, sharing.i[0])
        answer = access.answer
        time_up, wait = self._timer(m)
        soft_reset, in_band = self._identify(m)
        m.d.comb += [
            settings.phy.eq(self.address), reader.phy.eq(self.address),
            self.link_up.eq(self.status.usable() & (self.in_band_up | ~in_band)),
        ]
        again, misses = Signal(), Signal(range(self.MISSES))
        repairs = Signal(range(self.REPAIRS + 1))

        def miss():
            m.d.sync += [self.status.eq(0), self.state.eq(PhyState.SEARCH), misses.eq(misses + 1)]
            if not self._shared_reset:
                with m.If(misses == self.MISSES - 1):
                    m.d.sync += again.eq(1)
            wait("Pause")

        with m.FSM():
            with m.State("Reset"):
                m.d.comb += self.reset.eq(1)
                m.d.sync += [self.status.eq(0), self.state.eq(PhyState.RESET),
                             self.refused.eq(0), misses.eq(0), repairs.eq(0), again.eq(0)]
                with m.If(time_up):
                    wait("Settle")
            with m.State("Settle"), m.If(time_up):
                m.next = "Alive"
            with m.State("Pause"):
                with m.If(again):
                    wait("Reset")
                with m.Elif(time_up):
                    m.next = "Alive"

            with m.State("Alive"), m.If(access(self.address, CONTROL)):
                m.d.sync += self.missing.eq(answer.error | answer.data.all())
                m.next = "Identify"
                with m.If(answer.error | answer.data.all()):
                    if self._search:
                        m.d.sync += self.address.eq(self.address + 1)
                    miss()
                with m.Elif(answer.data[15]):
                    miss()
            with m.State("Identify"), m.If(access(self.address, IDENTIFIER)):
                m.d.sync += self.identifier[16:].eq(answer.data)
                m.next = "IdentifyModel"
            with m.State("IdentifyModel"), m.If(access(self.address, IDENTIFIER + 1)):
                m.d.sync += self.identifier[:16].eq(answer.data)
                m.next = "Start"
            with m.State("Start"):
                m.d.comb += settings.start.eq(1)
                m.next = "Settings"
            with m.State("Settings"), m.If(settings.done):
                m.next = "Judge"
            with m.State("Judge"):
                m.d.sync += [misses.eq(0), repairs.eq(0), self.refused.eq(0)]
                m.next = "Read"
                with m.If(settings.failed):
                    miss()
                with m.Elif(settings.changed & (repairs != self.REPAIRS)):
                    m.d.sync += repairs.eq(repairs + 1)
                    m.next = "Renegotiate"
                with m.Elif(settings.changed):
                    m.d.sync += [repairs.eq(repairs), self.refused.eq(1)]
            with m.State("Renegotiate"):
                order = RENEGOTIATE | Mux(soft_reset, SOFT_RESET, 0)
                with m.If(access(self.address, CONTROL, write=1, value=order)):
                    m.d.sync += [self.status.eq(0), self.state.eq(PhyState.SET_UP)]
                    wait("Pause")
            with m.State("Read"):
                m.d.comb += reader.start.eq(1)
                m.next = "Link"
            with m.State("Link"), m.If(reader.done):
                m.d.sync += [self.status.eq(reader.status), self.state.eq(PhyState.POLL)]
                wait("Pause")
                with m.If(reader.failed):
                    miss()

        with m.If(self.restart):
            m.d.sync += again.eq(1)
        return m

    def _timer(self, m):
        """Make the timer: condition that the time is up, and a function that enters a state and
        loads its time.
        """
        cycles = Signal(range(self._cycles_per_us), init=self._cycles_per_us - 1)
        left = Signal(range(max(self._times.values()) + 1), init=self._times["Reset"])
        m.d.sync += cycles.eq(cycles - 1)
        with m.If(cycles == 0):
            m.d.sync += [cycles.eq(self._cycles_per_us - 1), left.eq(left - (left != 0))]

        def wait(state):
            m.d.sync += [cycles.eq(self._cycles_per_us - 1), left.eq(self._times[state])]
            m.next = state
        return left == 0, wait

    def _identify(self, m):
        """Whether the model in ``identifier`` needs a software reset, and whether it sends in-band
        status."""
        soft_reset, in_band = Signal(), Signal()
        m.d.comb += self._settings.which.eq(len(self._phys))
        for n, phy in enumerate(self._phys):
            with m.If((self.identifier & phy.mask) == phy.identifier):
                m.d.comb += [self._settings.which.eq(n), soft_reset.eq(phy.soft_reset),
                             in_band.eq(phy.in_band)]
        m.d.comb += self.unknown.eq(~self.missing
                                    & (self._settings.which == len(self._phys)))
        return soft_reset, in_band
