"""The golden switch with the registers of the virtual switch."""

from dxpu.switch.config.identity import Identity
from dxpu.switch.config.placeholder_map import placeholder_map
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu_model.switch import GoldenSwitch, SwitchMaps
from dxpu_model.switch_function import GoldenFunction

__all__ = ["golden_function", "golden_switch", "switch_maps"]


def switch_maps(identity: Identity | None = None) -> SwitchMaps:
    """The registers of all functions of the switch."""
    return SwitchMaps(function_map(UPSTREAM, identity), function_map(DOWNSTREAM, identity),
                      placeholder_map(identity))


def golden_switch(ports: int, identity: Identity | None = None) -> GoldenSwitch:
    """A golden switch with ``ports`` downstream ports."""
    return GoldenSwitch(ports, switch_maps(identity), identity)


def golden_function(port: int | None, identity: Identity | None = None) -> GoldenFunction:
    """The function of a port; ``None`` is the upstream port."""
    return GoldenFunction(
        port, function_map(UPSTREAM if port is None else DOWNSTREAM, identity), identity)
