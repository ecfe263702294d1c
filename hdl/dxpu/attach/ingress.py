"""Credits for TLPs from PCIe, which an attached data link layer can advertise."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import TlpClass, TlpInfo

__all__ = ["CreditLimits", "CreditLedger", "divide"]

#: Bytes of a TLP besides its payload: header, prefixes, digest.
OVERHEAD = 40


def divide(space):
    """Credits of an in-order buffer of ``space`` bytes: headers and units of data, by class.

    The buffer has TLPs of all classes, so its space is divided once: a third for headers, the rest
    for data. Each class gets a third of the headers. Posted requests and completions get half of
    the data units each; a non-posted request has two units at most, which are granted with its
    header.
    """
    if not isinstance(space, int) or space < 512:
        raise ValueError(f"space must be at least 512 bytes, not {space!r}")
    headers = max(1, space // 3 // (3 * OVERHEAD))
    units = max(1, (space - 3 * headers * OVERHEAD) // 2 // 16)
    return {TlpClass.P: (headers, units), TlpClass.NP: (headers, 2 * headers),
            TlpClass.CPL: (headers, units)}


class CreditLimits(data.Struct):
    """Credit limits of a class, as CREDITS_ALLOCATED (2.6.1): totals since reset, modulo 2^16."""

    #: TLPs that the sender may have sent.
    header: 16
    #: Units of 16 bytes of data that the sender may have sent.
    data: 16


class CreditLedger(wiring.Component):
    """Grants the space of an ingress buffer as credits: all of it at reset, then what is released.

    :func:`divide` says how much of it each class gets.

    Ref: PCIe Base 5.0, 2.6.1

    Parameters
    ----------
    space : int
        Size of the buffer in bytes.

    Members
    -------
    released_strobe, info : 1, :class:`~dxpu.tlp.types.TlpInfo`
        Strobe: the TLP that ``info`` describes has left the buffer. Only its class and payload
        dwords are used.
    hold_np : 1
        Withhold released credits of non-posted requests until this is 0.
    rx_p, rx_np, rx_cpl : :class:`CreditLimits`
        Limits by class. They rise one cycle after ``released_strobe``, or after ``hold_np`` fell.
    """

    def __init__(self, *, space):
        #: Headers and units at reset, by class.
        self.initial = divide(space)
        super().__init__({
            "released_strobe": In(1),
            "info": In(TlpInfo),
            "hold_np": In(1),
            "rx_p": Out(CreditLimits),
            "rx_np": Out(CreditLimits),
            "rx_cpl": Out(CreditLimits),
        })

    def elaborate(self, platform):
        m = Module()
        units = Signal(9)
        m.d.comb += units.eq((self.info.payload_dwords + 3)[2:])
        for cls, limits in ((TlpClass.P, self.rx_p), (TlpClass.NP, self.rx_np),
                            (TlpClass.CPL, self.rx_cpl)):
            headers, first = self.initial[cls]
            header, payload = Signal(16, init=headers), Signal(16, init=first)
            m.d.comb += [limits.header.eq(header), limits.data.eq(payload)]
            freed = self.released_strobe & (self.info.cls == cls)
            if cls is TlpClass.NP:
                withheld = Signal(range(headers + 1))
                withheld_units = Signal(range(first + 1))
                with m.If(self.hold_np):
                    m.d.sync += [withheld.eq(withheld + freed),
                                 withheld_units.eq(withheld_units + Mux(freed, units, 0))]
                with m.Else():
                    m.d.sync += [header.eq(header + withheld + freed),
                                 withheld.eq(0), withheld_units.eq(0),
                                 payload.eq(payload + withheld_units + Mux(freed, units, 0))]
            else:
                with m.If(freed):
                    m.d.sync += [header.eq(header + 1), payload.eq(payload + units)]
        return m
