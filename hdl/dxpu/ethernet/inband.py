"""In-band link status between RGMII frames (RGMII 2.0, section 3.4.1, table 4): debounce, and clock
crossing to the core.
"""

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["InBandStatus", "LinkSpeed", "LinkStatus"]


class LinkSpeed(enum.Enum, shape=2):
    """Bit rate of a link, coded as RXD[2:1] between frames."""

    M10 = 0
    M100 = 1
    M1000 = 2
    RESERVED = 3


class LinkStatus(data.Struct):
    """State of a link. Fields as RXD[3:0] between frames, the first field least significant."""

    #: The link is up.
    link: 1
    #: Bit rate of the link.
    speed: LinkSpeed
    #: The link is full duplex.
    duplex: 1

    def usable(self):
        """Whether the MAC can use the link: up, 1 Gb/s, full duplex."""
        return self.link & (self.speed == LinkSpeed.M1000) & self.duplex


class InBandStatus(wiring.Component):
    """Debounces the status words that a PHY sends between frames, and passes them to ``sync``.

    A status is accepted after :attr:`EQUAL` equal words in a row between frames; bytes of frames
    are not counted. Every :attr:`BEAT` cycles of ``rx_domain`` the accepted status is sent to
    ``sync``. Without an update for ``timeout`` cycles of ``sync``, the receive clock counts as
    stopped: ``alive`` falls, and ``status`` is zero until the clock runs again.

    Latency: at most ``EQUAL`` words between frames, ``BEAT`` + 1 cycles of ``rx_domain`` and five
    of ``sync``. ``BEAT`` cycles of ``rx_domain`` must be longer than four cycles of ``sync``, and
    shorter than ``timeout``: with ``rx_domain`` at 125 MHz, ``sync`` must be faster than 16 MHz; at
    2.5 MHz, slower than 640 MHz with the default timeout.

    Parameters
    ----------
    rx_domain : str
        Clock domain of ``word`` and ``gap``.
    timeout : int
        Cycles of ``sync`` without an update after which the receive clock counts as stopped; at
        least 8.
    Members
    -------
    word : In(4)
        RXD[3:0] at the rising edge.
    gap : In(1)
        No frame and no error: ``word`` is a status.
    status : Out(LinkStatus)
        Accepted status; in ``sync``.
    alive : Out(1)
        The receive clock runs; in ``sync``.
    """

    #: Equal words until a status is accepted; more than a gap of 12 bytes has.
    EQUAL = 16
    #: Cycles of the receive clock between two updates of ``sync``.
    BEAT = 32

    word: In(4)
    gap: In(1)
    status: Out(LinkStatus)
    alive: Out(1)

    def __init__(self, *, rx_domain="gmii_rx", timeout=8192):
        if not isinstance(timeout, int) or timeout < 8:
            raise ValueError(f"timeout must be an integer of at least 8, not {timeout!r}")
        super().__init__()
        self._rx_domain = rx_domain
        self._timeout = timeout

    def elaborate(self, platform):
        m = Module()
        rx = m.d[self._rx_domain]

        heard, counted, sent = Signal(4), Signal(4), Signal(4)
        equal = Signal(range(self.EQUAL))
        with m.If(self.gap):
            rx += heard.eq(self.word)
            with m.If(self.word != heard):
                rx += equal.eq(0)
            with m.Elif(equal != self.EQUAL - 2):
                rx += equal.eq(equal + 1)
            with m.Else():
                rx += counted.eq(heard)

        # `sent` stands still while `beat` crosses, so its bits need no handshake of their own.
        cycle, beat = Signal(range(self.BEAT)), Signal()
        rx += cycle.eq(cycle + 1)
        with m.If(cycle == self.BEAT - 1):
            rx += [sent.eq(counted), beat.eq(~beat)]

        arrived, word = Signal(), Signal(4)
        m.submodules.beat = FFSynchronizer(beat, arrived)
        m.submodules.word = FFSynchronizer(sent, word)
        # All bits of the word have arrived one cycle after `beat`.
        seen, taken = Signal(), Signal()
        left = Signal(range(self._timeout))
        m.d.sync += [seen.eq(arrived), taken.eq(seen)]
        with m.If(seen != taken):
            m.d.sync += [self.status.eq(word), self.alive.eq(1), left.eq(self._timeout - 1)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Else():
            m.d.sync += [self.status.eq(0), self.alive.eq(0)]
        return m
