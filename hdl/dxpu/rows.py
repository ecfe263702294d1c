"""What the PCIe side and the fabric share: the row, the row's life and the class of a TLP.

A row is a slot's entry of the proxy's mapping table. The first field of a structure is the least
significant.
"""

from amaranth.lib import data

from dxpu.tlp.types import TlpClass

__all__ = ["LIFE_BITS", "NO_ROW", "UNIT_BITS", "ClassMeta", "TlpMeta"]

#: Row number of a frame for a slot pair that no row of the mapping table names.
NO_ROW = 63

#: Bits of the number that tells the lives of a row apart. Each life begins with an exchange of
#: events with the peer; no TLP waits in a queue while the number comes round.
LIFE_BITS = 8

#: Bits of a number of data credits: up to 256 units of 16 bytes.
UNIT_BITS = 9


class TlpMeta(data.Struct):
    """Row of the local mapping table that a TLP came from or goes to, and of the row's lives the
    one that it belongs to (only on the way out)."""

    row: 6
    life: LIFE_BITS


class ClassMeta(data.Struct):
    """As :class:`TlpMeta`, and the credits that the TLP takes: one header and ``units`` of data of
    its class."""

    row: 6
    life: LIFE_BITS
    cls: TlpClass
    units: UNIT_BITS
