"""Checks of a TLP that need nothing but its header.

Ref: PCIe Base 5.0, 2.2.2 (payload), 2.2.5 (byte enables), 2.2.7 (memory, I/O, configuration
and AtomicOp requests), 2.2.8 (messages), 2.2.10 (prefixes), 2.3 (malformed TLPs);
docs/reference/tlp-checks.md (who checks what)
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .header import Kind, RawHeader, tlp_dwords
from .types import (
    MAX_NP_DWORDS, NO_LIMIT, AddressType, Fmt, HeaderCommon, Malformed, MessageCode, RequestHeader1,
    swap_bytes,
)

__all__ = ["HeaderCheck"]

#: Messages that must have traffic class 0, which receivers must check.
TC0_MESSAGES = tuple(
    code.value for code in MessageCode
    if code in (MessageCode.UNLOCK, MessageCode.PM_ACTIVE_STATE_NAK, MessageCode.PM_PME,
                MessageCode.PME_TURN_OFF, MessageCode.PME_TO_ACK, MessageCode.SET_SLOT_POWER_LIMIT)
    or code.name.startswith(("ASSERT_INT", "DEASSERT_INT", "ERR_")))


class HeaderCheck(wiring.Component):
    """Computes the size of a TLP and checks its header.

    Reserved bits are ignored (2.3). Latency one cycle, throughput one header per cycle, no
    backpressure.

    Parameters
    ----------
    completer : bool
        Checks of a completer: operand size and alignment of AtomicOps. Else those of a switch port:
        the data of AtomicOps fits the credits, and the traffic class of LTR messages is 0.

    Members
    -------
    strobe, words, prefixes, payload_limit, truncated, bad_prefix
        Those of :class:`~dxpu.tlp.header.HeaderCapture`.
    valid, header : 1, :class:`~dxpu.tlp.header.RawHeader`
        A header, in the cycle in which ``valid`` is 1; it stays until the cycle after the next
        strobe.
    """

    strobe: In(1)
    words: In(data.ArrayLayout(32, 4))
    prefixes: In(3)
    payload_limit: In(3)
    truncated: In(1)
    bad_prefix: In(1)
    valid: Out(1)
    header: Out(RawHeader)

    def __init__(self, *, completer=False):
        if not isinstance(completer, bool):
            raise TypeError(f"completer must be a bool, not {completer!r}")
        self._completer = completer
        self._tc0 = TC0_MESSAGES if completer else (*TC0_MESSAGES, MessageCode.LTR.value)
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        common = HeaderCommon(self.words[0])
        request = RequestHeader1(self.words[1])
        kind = Kind.of(m, common.fmt, common.type)
        length = Cat(common.length_low, common.length_high)
        address = Signal(64)
        low = swap_bytes(self.words[2])
        m.d.comb += address.eq(Mux(common.fmt[0], Cat(swap_bytes(self.words[3]), low), low))

        # Attr[2], TH and LN are reserved in them.
        fixed = (length != 1) | common.tc.any() | common.attr_low.any() | common.at.any()
        # An aligned AtomicOp crosses no boundary whatever its Length; the low bits of a translation
        # request are no address within a page (10.2.2).
        accesses = kind.is_memory & ~kind.is_atomic & (
            common.fmt[1] | (common.at != AddressType.TRANSLATION_REQUEST))
        found = {
            Malformed.TRUNCATED: self.truncated,
            Malformed.PREFIX: self.bad_prefix | (common.fmt == Fmt.PREFIX),
            Malformed.FORMAT: ~kind.defined,
            Malformed.FIXED: (kind.is_io | kind.is_config) & fixed,
            Malformed.ATOMIC: kind.is_atomic & ~self._operand_legal(kind, length, address),
            Malformed.BYTE_ENABLE: self._byte_enables_bad(m, kind, common, request, length,
                                                          address),
            Malformed.BOUNDARY: accesses & self._crosses(m, length, address),
            Malformed.TRAFFIC_CLASS: self._traffic_class_bad(kind, common, request),
            Malformed.PAYLOAD: common.fmt[1] & self._exceeds(m, length),
        }
        flags = Signal(len(found), reset_less=True)
        m.d.sync += self.valid.eq(self.strobe)
        with m.If(self.strobe):
            m.d.sync += [
                flags.eq(Cat(found.values())),
                self.header.words.eq(self.words),
                self.header.prefixes.eq(self.prefixes),
                self.header.dwords.eq(tlp_dwords(common, self.prefixes)),
            ]
        for flag, cause in reversed(list(zip(flags, found, strict=True))):
            with m.If(flag):
                m.d.comb += self.header.cause.eq(cause)
        return m

    def _operand_legal(self, kind, length, address):
        """Whether the operands of an AtomicOp are legal (2.2.7.1).

        At a completer: 4 or 8 bytes, for CAS twice 4, 8 or 16, naturally aligned. At a switch port:
        no more data than queues and credits of non-posted requests have room for.
        """
        if not self._completer:
            return length.any() & (length <= MAX_NP_DWORDS)
        size_4 = Mux(kind.is_cas, length == 2, length == 1)
        size_8 = Mux(kind.is_cas, length == 4, length == 2)
        size_16 = kind.is_cas & (length == 8)
        return (size_4 | (size_8 & ~address[2]) | (size_16 & ~address[2] & ~address[3]))

    @staticmethod
    def _byte_enables_bad(m, kind, common, request, length, address):
        """Whether byte enables are illegal (2.2.5).

        With one dword, Last DW BE must be 0. With two dwords in one quadword both must be other
        than 0. Else the enabled bytes must be contiguous.
        """
        first, last = request.first_be, request.last_be
        applies, contiguous = Signal(), Signal()
        m.d.comb += [
            applies.eq((kind.is_memory & ~kind.is_atomic & (~common.th | common.fmt[1]))
                       | kind.is_io | kind.is_config),
            contiguous.eq(first.matches("1000", "1100", "1110", "1111")
                          & last.matches("0001", "0011", "0111", "1111")),
        ]
        two = (length == 2) & ~address[2]
        return applies & Mux(length == 1, last.any(),
                             ~Mux(two, first.any() & last.any(), contiguous))

    @staticmethod
    def _crosses(m, length, address):
        """Whether a request crosses a multiple of 4 KiB (2.2.7)."""
        end = Signal(11)  # at most 1023 + 1024 dwords
        m.d.comb += end.eq(address[2:12] + Cat(length, length == 0))
        return end[10] & end[:10].any()

    def _exceeds(self, m, length):
        """Whether the data exceeds Max_Payload_Size (2.2.2): 32 dwords << code; none from 5 on."""
        most = Signal(10)  # dwords, less one
        m.d.comb += most.eq(length - 1)
        return Array(most[5 + code:].any() for code in range(NO_LIMIT))[self.payload_limit] & (
            self.payload_limit < NO_LIMIT)

    def _traffic_class_bad(self, kind, common, request):
        code = Cat(request.first_be, request.last_be)
        return kind.is_message & common.tc.any() & code.matches(*self._tc0)
