"""Models of I/O buffers at both clock edges, for ``io.SimulationPort``.

Amaranth's ``io.DDRBuffer`` becomes the buffer of the platform's vendor, which does not simulate.
:class:`WithDdrModels` puts a design with such buffers into a simulation, in place of the platform.
"""

from amaranth import *
from amaranth.hdl import Fragment
from amaranth.lib import io

__all__ = ["WithDdrModels"]


class DdrModel(Elaboratable):
    """Model with the behaviour documented for ``io.DDRBuffer``, with latencies of one cycle.

    Input: ``i[0]`` is the level of the port at a rising edge, ``i[1]`` at the falling edge behind;
    both appear at the next rising edge. Output: the value of ``o`` before a rising edge is driven
    behind that edge, ``o[0]`` while the clock is high, ``o[1]`` while it is low.
    """

    def __init__(self, buffer):
        self._buffer = buffer

    def elaborate(self, platform):
        m = Module()
        buffer, port = self._buffer, self._buffer.port
        if buffer.direction is io.Direction.Input:
            m.domains.falling = falling = ClockDomain(clk_edge="neg", local=True, reset_less=True)
            m.d.comb += falling.clk.eq(ClockSignal(buffer.i_domain))
            high, low = Signal(len(port)), Signal(len(port))
            m.d.falling += low.eq(port.i)
            m.d[buffer.i_domain] += [high.eq(port.i), buffer.i[0].eq(high), buffer.i[1].eq(low)]
        else:
            high, low = Signal(len(port)), Signal(len(port))
            m.d[buffer.o_domain] += [high.eq(buffer.o[0]), low.eq(buffer.o[1])]
            m.d.comb += [
                port.o.eq(Mux(ClockSignal(buffer.o_domain), high, low)),
                port.oe.eq(buffer.oe.replicate(len(port))),
            ]
        return m


class _Models:
    """Platform for a component with pins: supplies buffer models."""

    def get_io_buffer(self, buffer):
        if isinstance(buffer, io.DDRBuffer):
            return DdrModel(buffer)
        return buffer.elaborate(None)


class WithDdrModels(Elaboratable):
    """``component`` with models for its I/O buffers, to be a submodule; has the component's
    ports."""

    def __init__(self, component):
        self._component = component

    def elaborate(self, platform):
        return Fragment.get(self._component, _Models())
