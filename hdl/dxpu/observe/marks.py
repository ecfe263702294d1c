"""High-water marks of queues.

Ref: docs/reference/observe.md, "Marks"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import Field, Register

__all__ = ["Mark", "mark_registers"]

#: Bits of a mark.
BITS = 16


def mark_registers(fills: dict, address: int) -> tuple:
    """Descriptions of the registers of marks, by names of queues, from a byte address on."""
    return tuple(register for n, (name, fill) in enumerate(fills.items()) for register in (
        Register(f"mark_{name}", (
            Field("now", BITS, "hw", doc=fill.text),
            Field("most", BITS, "hw", doc="The most since reset, or since this register was "
                  "written, whatever the value.")),
            fill.text, address=address + 8 * n),
        Register(f"room_{name}", (
            Field("most", BITS, "const", reset=fill.room, doc="What there can be at most."),),
            f"Room for that of `mark_{name}`."),
    ))


class Mark(wiring.Component):
    """Keeps the highest level of a queue, which is looked at through a register.

    Latency two cycles, of pulses three.

    Parameters
    ----------
    fill : :class:`~dxpu.stage.Fill`

    Members
    -------
    clear : 1
        Strobe: the highest level is that of now.
    now, most : 16
    """

    now: Out(BITS)
    most: Out(BITS)
    clear: In(1)

    def __init__(self, fill):
        super().__init__()
        self._fill = fill
        if not 1 <= fill.room < 1 << BITS:
            raise ValueError(f"room must be 1 to {(1 << BITS) - 1}, not {fill.room!r}")

    def elaborate(self, platform):
        m = Module()
        fill, bits = self._fill, self._fill.room.bit_length()
        level, most = Signal(bits), Signal(bits)
        if fill.leaves is None:
            m.d.sync += level.eq(fill.room - fill.level if fill.free else fill.level)
        else:
            enters, leaves = Signal.like(fill.level), Signal.like(fill.leaves)
            m.d.sync += [enters.eq(fill.level), leaves.eq(fill.leaves),
                         level.eq(level + sum(enters) - sum(leaves))]
        with m.If(self.clear | (level > most)):
            m.d.sync += most.eq(level)
        m.d.comb += [self.now.eq(level), self.most.eq(most)]
        return m
