"""Components that become a Verilog module of their own, so that many instances cost one."""

from amaranth import *
from amaranth.lib.wiring import In

__all__ = ["instance_of"]


def instance_of(module, component):
    """An instance of ``module``, which is ``component`` in Verilog, with ports of its own.

    Whoever is simulated has ``component`` among its ``parts``, under that name
    (:func:`dxpu_sim.run.runner.verilog`). Its domain is ``sync``.

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
