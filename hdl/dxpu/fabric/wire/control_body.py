"""Bodies of control frames.

Ref: docs/reference/wire-format.md, control frames
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC32C, state_matrix, xor_tree

from .format import SACK_WORD_BYTES
from .frame_fields import body_bytes, credit_bytes, wire
from .frame_types import Body
from .types import Hello

__all__ = ["BodyCrc", "control_bodies", "sack_with_word"]


def control_bodies(*, event, credits, request, greeting, hello):
    """The dwords of each body of a control frame, without its CRC.

    The values stay in the caller's signals. So the dwords of bodies that share a beginning are the
    same objects.

    Parameters
    ----------
    event
        ``code``, ``generation`` and ``argument`` of an EVENT, as members.
    credits : array of :class:`~.types.Credit`
        Entries of ACK and SACK.
    request : 1
        Number of a request to go back, of a SACK without a word.
    greeting : :class:`~.types.Greeting`
        What differs from one HELLO to the next; reason of a FENCE.
    hello : :class:`~.types.Hello`
        What all HELLOs have in common.

    Returns
    -------
    dict of :class:`~.frame_types.Body` to list of 32-bit values
        SACK is without a word.
    """
    entries = _dwords(Cat(credit_bytes(credit) for credit in credits))
    members = [name for name, _ in data.Layout.cast(Hello)]
    values = {name: (greeting if name in ("nonce", "offered", "echoed") else hello)[name]
              for name in members}
    return {
        Body.EVENT: _dwords(body_bytes(Body.EVENT, **{
            name: event[name] for name in ("code", "generation", "argument")})),
        Body.FENCE: _dwords(body_bytes(Body.FENCE, reason=greeting.reason)),
        Body.LIMITS: entries,
        Body.SACK: [*entries, *_dwords(Cat(Const(0, 16), wire(request, 2)))],
        Body.HELLO: _dwords(Cat(
            wire(value, field.size)
            for value, field in zip(values.values(), Body.HELLO.fields, strict=True))),
    }


def sack_with_word(word):
    """What is behind the entries of a SACK with this word: a count of 1, and the word."""
    return _dwords(Cat(wire(Const(1), 2), Const(0, 16), wire(word, SACK_WORD_BYTES)))


def _dwords(body):
    assert len(body) % 32 == 0
    return [body.word_select(n, 32) for n in range(len(body) // 32)]


class BodyCrc(wiring.Component):
    """CRC-32C of a body, a dword per cycle.

    A control frame has time, so one small tree is enough.

    Parameters
    ----------
    None.

    Members
    -------
    clear : 1
        A body begins with the next dword.
    step, body_dword : 1, 32
        Strobe: the next dword of the body.
    body_crc : 32
        CRC of the dwords up to the last ``step``, from the cycle after it on.
    """

    clear: In(1)
    step: In(1)
    body_dword: In(32)
    body_crc: Out(32)

    def elaborate(self, platform):
        m = Module()
        state = Signal(32, reset_less=True)
        # The register is as wide as the message goes on: both count alike.
        after = xor_tree(m, state ^ self.body_dword, state_matrix(CRC32C, 4))
        m.d.comb += self.body_crc.eq(~state)
        with m.If(self.clear):
            m.d.sync += state.eq(~0)
        with m.Elif(self.step):
            m.d.sync += state.eq(after)
        return m
