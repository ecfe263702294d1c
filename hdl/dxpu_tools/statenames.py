"""Names of FSM states in generated Verilog."""

import contextlib

from amaranth.hdl import Elaboratable, Fragment

__all__ = ["StateNames"]


class StateNames(Elaboratable):
    """``component``, its FSMs' state signals carrying their states' names as an enum's do.

    Amaranth writes an enum's members as attributes ``enum_value_<bits>`` into the Verilog, where a
    wave viewer's tables can be made from them (:mod:`dxpu_sim.waves.gtkwave`); an FSM's states it
    does not.
    """

    def __init__(self, component):
        self._component = component

    def __getattr__(self, name):
        return getattr(self._component, name)

    def elaborate(self, platform):
        fragment = Fragment.get(self._component, platform)
        self._name_states(fragment)
        return fragment

    def _name_states(self, fragment):
        for statements in fragment.statements.values():
            for signal in statements._lhs_signals():
                # A reset synchronizer drives its domain's ResetSignal, which has no decoder.
                decoder = getattr(signal, "decoder", None)
                if callable(decoder) and not isinstance(decoder, type):
                    signal.attrs["enum_base_type"] = "State"
                    for n in range(1 << len(signal)):
                        with contextlib.suppress(KeyError):
                            name = decoder(n).rpartition("/")[0]
                            signal.attrs[f"enum_value_{n:0{len(signal)}b}"] = name
        for sub, *_ in fragment.subfragments:
            self._name_states(sub)
