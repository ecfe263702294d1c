"""Components compiled to separate Verilog modules: many instances cost as much as a single
instance."""

from amaranth import *
from amaranth.lib.wiring import In

__all__ = ["instance_of"]


def instance_of(module, component):
    """An instance of ``module``, the Verilog module of ``component``, with ports of its own.

    The simulated top lists ``component`` among its ``parts`` under the name ``module``
    (:func:`dxpu_sim.run.runner.verilog`). The clock domain of the instance is ``sync``.

    Returns
    -------
    the instance, to be made a submodule, and its ports
    """
    ports = component.signature.create(path=(module,))
    connections = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
    for path, member, value in component.signature.flatten(ports):
        way = "i" if member.flow is In else "o"
        connections[f"{way}_{'__'.join(map(str, path))}"] = Value.cast(value)
    return Instance(module, **connections), ports
