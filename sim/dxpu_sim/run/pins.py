"""Pins between Python and a simulated design."""

from amaranth.lib.wiring import Out

__all__ = ["connect_pins"]


def connect_pins(m, pins, inner):
    """Connect a member of the top (``pins``, as In) to ``inner``, which has the same signature.

    A register samples the inputs set by Python: Verilator evaluates all logic behind an input at
    every change of any clock, edge or not.
    """
    for path, member, value in inner.signature.flatten(inner):
        pin = pins
        for name in path:
            pin = pin[name] if isinstance(name, int) else getattr(pin, name)
        if member.flow == Out:
            m.d.comb += pin.eq(value)
        else:
            m.d.sync += value.eq(pin)
