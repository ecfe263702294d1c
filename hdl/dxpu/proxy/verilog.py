"""Wrapper with plain ports for Verilog: one vector per field, with readable names."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Flow

__all__ = ["PlainPorts", "plain_ports"]


def plain_ports(signature, prefix=""):
    """Leaves of a signature: ``(name, flow, width, path)`` in order.

    Interfaces and arrays are joined with underscores, ``upstream_rx_valid`` or ``gmii0_tx_txd``;
    the payload of a stream is split into its fields without the word "payload". ``path`` leads from
    the interface object to the value.
    """
    for name, member in signature.members.items():
        for index in _indices(member.dimensions):
            full = prefix + name + "_".join(map(str, index))
            path = ((name, *index),)
            if member.is_port:
                yield from _fields(full, member.flow, member.shape, path, name == "payload", prefix)
            else:
                # The signature of an In member is already flipped.
                for leaf, flow, width, rest in plain_ports(member.signature, full + "_"):
                    yield leaf, flow, width, path + rest


def _indices(dimensions):
    """All index tuples of an array member; one empty tuple if it is none."""
    if not dimensions:
        return [()]
    return [(n, *rest) for n in range(dimensions[0]) for rest in _indices(dimensions[1:])]


def _fields(name, flow, shape, path, payload, prefix):
    """A port, or one for each field of a structure."""
    layout = shape if isinstance(shape, data.Layout) else None
    if layout is None and isinstance(shape, type) and issubclass(shape, data.Struct):
        layout = data.Layout.cast(shape)
    if layout is None:
        yield name, flow, Shape.cast(shape).width, path
        return
    stem = prefix if payload else name + "_"
    for key, field in layout:
        yield f"{stem}{key}", flow, Shape.cast(field.shape).width, (*path, key)


class PlainPorts(wiring.Component):
    """Wraps ``component`` so that its Verilog module has only plain ports.

    Clock and reset inputs appear for every clock domain that the component uses and does not drive:
    ``clk`` and ``rst`` of the core, ``gmii<n>_rx_clk``, ``gmii<n>_tx_clk`` and their resets. Resets
    are active high, synchronous to their clock.

    Parameters
    ----------
    component : wiring.Component
    """

    def __init__(self, component):
        self._component = component
        self._leaves = list(plain_ports(component.signature))
        super().__init__({name: flow(width) for name, flow, width, _ in self._leaves})

    def elaborate(self, platform):
        m = Module()
        m.submodules.proxy = self._component
        for name, flow, _, path in self._leaves:
            value = self._component
            for step in path:
                if isinstance(step, tuple):
                    value = getattr(value, step[0])
                    for index in step[1:]:
                        value = value[index]
                else:
                    value = value[step]
            outer, inner = Value.cast(getattr(self, name)), Value.cast(value)
            m.d.comb += outer.eq(inner) if flow is Flow.Out else inner.eq(outer)
        return m
