"""Bodies of control frames, each with its CRC.

Ref: docs/reference/wire-format.md, control frames
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC32C, state_matrix, xor_tree

from .format import ACK_ENTRIES, BODY_CRC_BYTES, SACK_WORD_BYTES
from .frame_fields import any_of, body_bytes, credit_bytes, wire
from .frame_types import Body, FrameType, types_with
from .types import Control, Credit, Greeting, Hello

__all__ = ["ControlBody"]


class ControlBody(wiring.Component):
    """Puts the body of a control frame together, a dword in each cycle, and its CRC behind it.

    A control frame has time, so one small tree makes the CRC of all. Latency from ``start`` to
    ``done`` a cycle for each dword of the body and one more: 3 for EVENT and FENCE, 7 for ACK, 8
    for SACK and HELLO, 10 for a SACK with a word. Inputs must hold until then; ``dwords`` and
    ``size`` hold until the next ``start``.

    Parameters
    ----------
    selective : bool
        SACKs may have a word.

    Members
    -------
    start, done : 1
        Strobes; ``done`` is the last cycle in which ``dwords`` are not complete.
    clear : 1
        Strobe: there is no body, all ``dwords`` are zero.
    kind : :class:`~.frame_types.FrameType`
    control, credits, greeting, about
        What EVENT, ACK and SACK, HELLO and HELLO_ACK say; the latter two.
    word, with_word : 64, 1
        Of a SACK.
    dwords : array of 32-bit values
        The body and its CRC; zero behind that.
    size : number of these
    """

    def __init__(self, *, selective=False):
        self._selective = selective
        longest = max(Body.HELLO.size, Body.SACK.size + SACK_WORD_BYTES * selective)
        #: Of the longest body with its CRC.
        self.most = (longest + BODY_CRC_BYTES) // 4
        super().__init__({
            "start": In(1),
            "clear": In(1),
            "done": Out(1),
            "kind": In(FrameType),
            "control": In(Control),
            "credits": In(data.ArrayLayout(Credit, ACK_ENTRIES)),
            "greeting": In(Greeting),
            "about": In(Hello),
            "word": In(8 * SACK_WORD_BYTES),
            "with_word": In(1),
            "dwords": Out(data.ArrayLayout(32, self.most)),
            "size": Out(range(self.most + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        bodies = {
            types_with(Body.EVENT): self._event(),
            types_with(Body.LIMITS, Body.SACK): self._limits(),
            types_with(Body.HELLO): self._hello(),
            types_with(Body.FENCE): body_bytes(Body.FENCE, reason=self.greeting.reason),
        }
        # One list of all bodies: where that of a kind begins, and its length.
        dwords = [body.word_select(n, 32) for body in bodies.values()
                  for n in range(len(body) // 32)]
        source, first = Signal(range(len(dwords))), Signal(range(len(dwords)))
        index, length = Signal(range(self.most + 1)), Signal(range(self.most + 1))
        dword, state = Signal(32), Signal(32)
        busy, last = Signal(), Signal()
        begin = 0
        with m.Switch(self.kind):
            for kinds, body in bodies.items():
                with m.Case(*kinds):
                    m.d.comb += [first.eq(begin), length.eq(len(body) // 32)]
                begin += len(body) // 32
        is_sack = any_of(self.kind, types_with(Body.SACK))
        with m.If(any_of(self.kind, types_with(Body.LIMITS)) | is_sack & ~self._has_word()):
            m.d.comb += length.eq(Body.LIMITS.size // 4 + is_sack)
        m.d.comb += [dword.eq(Cat(dwords).word_select(source, 32)), last.eq(index == length),
                     self.done.eq(busy & last)]
        with m.If(self.start | self.clear):
            m.d.sync += [busy.eq(self.start), source.eq(first), index.eq(0), state.eq(~0),
                         self.dwords.eq(0)]
        with m.Elif(busy):
            m.d.sync += [
                source.eq(source + 1), index.eq(index + 1), busy.eq(~last),
                self.size.eq(index + 1),
                # The register is as wide as the message goes on: both count alike.
                state.eq(xor_tree(m, state ^ dword, state_matrix(CRC32C, 4))),
            ]
            for n, place in enumerate(self.dwords):
                with m.If(index == n):
                    m.d.sync += place.eq(Mux(last, ~state, dword))
        return m

    def _has_word(self):
        return self.with_word & self._selective

    def _event(self):
        return body_bytes(Body.EVENT, **{
            name: self.control[name] for name in ("code", "generation", "argument")})

    def _limits(self):
        """The body of a SACK with a word, if there are such; those of ACK and SACK are shorter."""
        entries = Cat(credit_bytes(credit) for credit in self.credits)
        assert len(entries) == 8 * Body.LIMITS.size
        if not self._selective:
            return Cat(entries, Const(0, 8 * (Body.SACK.size - Body.LIMITS.size)))
        return Cat(entries, wire(self.with_word, 2), Const(0, 16), wire(self.word, 8))

    def _hello(self):
        """The body of HELLO and HELLO_ACK."""
        fields = {k: self.about[k] for k, _ in data.Layout.cast(Hello)}
        fields |= {k: self.greeting[k] for k in ("nonce", "offered", "echoed")}
        return Cat(wire(value, field.size)
                   for value, field in zip(fields.values(), Body.HELLO.fields, strict=True))
