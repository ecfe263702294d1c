"""Posted requests to the endpoint: memory writes and messages.

Ref: PCIe Base 5.0, 2.2.8 (messages), 2.3.1 (request handling), 2.7.2.1 (poisoned requests)
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import MessageCode, TlpClass

from .types import TlpTap

__all__ = ["Posted"]

#: Messages without effect on the endpoint, which are no errors either (2.2.8.1 to 2.2.8.10).
IGNORED = (MessageCode.UNLOCK, MessageCode.PM_ACTIVE_STATE_NAK, MessageCode.SET_SLOT_POWER_LIMIT,
           MessageCode.VENDOR_DEFINED_1,
           *(code for code in MessageCode if code.name.startswith("IGNORED")))


class Posted(wiring.Component):
    """Carries out posted requests while their data comes.

    The video memory takes any bytes. A register write consists of one or two whole dwords, each
    written separately. Poisoned writes have no effect (2.7.2.1) and pulse ``poisoned``. Unsupported
    requests are dropped and pulse ``refused``: writes to other addresses, of other sizes or to
    registers that do not take the value, and messages without a meaning for an endpoint.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address in the video memory.

    Members
    -------
    tap : :class:`~.types.TlpTap`
    address : byte address
    enables : 4
        Strobes: write these bytes of the tap's data to the video memory at ``address``.
    register_address : 16
    register_write : 1
        Strobe: write the tap's data to a register.
    register_refused : 1
        Pulse, one cycle after ``register_write``: the register does not take the value.
    turn_off : 1
        Pulse: PME_Turn_Off came.
    refused, poisoned : 1
        Pulses: an unsupported request was dropped; the data of a poisoned request was dropped.
    """

    def __init__(self, address_bits):
        super().__init__({
            "tap": In(TlpTap()), "address": Out(address_bits), "enables": Out(4),
            "register_address": Out(16), "register_write": Out(1), "register_refused": In(1),
            "turn_off": Out(1), "refused": Out(1), "poisoned": Out(1),
        })
        self._bits = address_bits

    def elaborate(self, platform):
        m = Module()
        tap, info = self.tap, self.tap.info
        mine, code = info.cls == TlpClass.P, info.message_code
        offset, left = Signal(max(16, self._bits)), Signal.like(info.payload_dwords)
        first, writes, failed = Signal(), Signal(), Signal()
        # Known two cycles after `begin`: the TLP is poisoned, is a write that may act.
        bad, acts = Signal(), Signal()
        poisoned = info.ep & info.payload_dwords.any()
        m.d.sync += [bad.eq(poisoned), acts.eq(mine & info.is_memory & ~poisoned)]
        with m.If(tap.begin):
            m.d.sync += [offset.eq(info.address), left.eq(info.payload_dwords), first.eq(1),
                         failed.eq(0)]
        with m.If(tap.strobe):
            m.d.sync += [offset.eq(offset + 4), left.eq(left - 1), first.eq(0)]
        with m.If(self.register_refused):
            m.d.sync += failed.eq(1)
        m.d.comb += [
            writes.eq(tap.strobe & acts),
            self.address.eq(offset),
            self.register_address.eq(offset),
            self.register_write.eq(writes & tap.hit0 & tap.whole),
        ]
        with m.If(writes & tap.hit2):
            m.d.comb += self.enables.eq(
                Mux(first, info.first_be, Mux(left == 1, info.last_be, 15)))

        known = code.matches(*IGNORED, MessageCode.PME_TURN_OFF)
        with m.If(tap.end & mine):
            m.d.comb += [
                self.poisoned.eq(bad),
                self.turn_off.eq(info.is_message & (code == MessageCode.PME_TURN_OFF)),
                self.refused.eq(~bad & Mux(info.is_message, ~known,
                                           Mux(
                    tap.hit0, ~tap.whole | failed | self.register_refused, ~tap.hit2))),
            ]
        return m
