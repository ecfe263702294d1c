"""From PCIe into the proxy: credits that an attached data link layer can advertise."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import TlpClass, TlpInfo

__all__ = ["CreditLimits", "CreditLedger"]


class CreditLimits(data.Struct):
    """Flow control limits granted to the PCIe link partner since reset, modulo 2^16.

    The sender may have sent at most ``header`` TLPs and ``data`` units of 16 bytes of the class.

    Members
    -------
    header, data : 16
    """

    header: 16
    data: 16


class CreditLedger(wiring.Component):
    """Counts the credits of one ingress port: what its buffer holds at first, then what leaves it.

    One in-order buffer serves all three classes, so its space is divided among them once: half the
    data units each to posted requests and completions (non-posted requests carry at most two units,
    granted with their headers), and a third of the headers to each class.

    Ref: PCIe Base 5.0, 2.6.1

    Parameters
    ----------
    space : int
        Bytes of the buffer behind the port.

    Members
    -------
    released : 1
        Strobe: a TLP described by ``info`` has left the buffer.
    info : :class:`~dxpu.tlp.types.TlpInfo`
    hold_np : 1
        Keep credits of non-posted requests that come free, for later.
    p, np, cpl : :class:`CreditLimits`
        Updated one cycle after ``released``, or after ``hold_np`` has fallen.
    """

    #: Bytes a TLP takes beside its payload: header, prefixes, digest.
    OVERHEAD = 40

    def __init__(self, *, space):
        if not isinstance(space, int) or space < 512:
            raise ValueError(f"space must be at least 512 bytes, not {space!r}")
        super().__init__({
            "released_strobe": In(1),
            "info": In(TlpInfo),
            "hold_np": In(1),
            "rx_p": Out(CreditLimits),
            "rx_np": Out(CreditLimits),
            "rx_cpl": Out(CreditLimits),
        })
        # A third of the space for headers, the rest for data.
        self._headers = max(1, space // 3 // (3 * self.OVERHEAD))
        self._units = max(1, (space - 3 * self._headers * self.OVERHEAD) // 2 // 16)

    def elaborate(self, platform):
        m = Module()
        units = Signal(9)
        m.d.comb += units.eq((self.info.payload_dwords + 3)[2:])
        for cls, limits in ((TlpClass.P, self.rx_p), (TlpClass.NP, self.rx_np),
                            (TlpClass.CPL, self.rx_cpl)):
            first = self._headers * 2 if cls is TlpClass.NP else self._units
            header, payload = Signal(16, init=self._headers), Signal(16, init=first)
            m.d.comb += [limits.header.eq(header), limits.data.eq(payload)]
            freed = self.released_strobe & (self.info.cls == cls)
            if cls is TlpClass.NP:
                withheld = Signal(range(self._headers + 1))
                withheld_units = Signal(range(2 * self._headers + 1))
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
