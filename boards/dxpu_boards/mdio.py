"""Pull-up of MDIO by the FPGA, on every board: the default of an ECP5's pin is a pull-down.

IEEE 802.3, clause 22, demands a pull-up of 1.5 kOhm at the station, so that a missing PHY reads as
ones. The pull-up of a pin is weaker. It suffices where the board has its own resistor, or the PHY
drives ones; a PHY that relies on the resistor may need a resistor on the board.
"""

from amaranth.build import Attrs, Resource, Subsignal

__all__ = ["mdio_pulled_up"]


def mdio_pulled_up(resources, **attrs):
    """Resources of a platform, with a pull-up at ``mdio`` of each ``eth_rgmii``.

    Parameters
    ----------
    resources : list of Resource
        Not changed.
    attrs
        The pull-up attribute of the vendor's tools; by default that of ECP5.
    """
    attrs = Attrs(**attrs or {"PULLMODE": "UP"})
    return [_with(resource, attrs) if resource.name == "eth_rgmii" else resource
            for resource in resources]


def _with(resource, attrs):
    pins = [Subsignal(pin.name, *pin.ios, pin.attrs, attrs) if pin.name == "mdio" else pin
            for pin in resource.ios]
    return Resource(resource.name, resource.number, *pins, resource.attrs)
