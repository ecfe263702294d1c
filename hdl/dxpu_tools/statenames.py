"""Names of FSM states in generated Verilog."""

import contextlib

from amaranth.hdl import Elaboratable, Fragment

__all__ = ["StateNames"]


class StateNames(Elaboratable):
    """Wrapper of ``component`` that attaches the names of FSM states to the state signals.

    Amaranth writes the members of an enum as attributes ``enum_value_<bits>`` into the Verilog,
    from which tables for wave viewers are made (:mod:`dxpu_sim.waves.gtkwave`), but not the states
    of an FSM. The wrapper adds the same attributes for FSM states.
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
