"""Side information of TLPs that the PCIe side and the fabric share: row, life, class, credits.

A row is a slot's entry of the proxy's mapping table. The first field of a structure is the least
significant.
"""

from amaranth.lib import data

from dxpu.tlp.types import TlpClass

__all__ = ["LIFE_BITS", "NO_ROW", "UNIT_BITS", "ClassMeta", "TlpMeta"]

#: Row number of a frame whose pair of slots is in no row of the mapping table.
NO_ROW = 63

#: Bits of the number of a row's life. Each life begins with an exchange of events with the peer, so
#: no TLP is in a queue for long enough that the number repeats.
LIFE_BITS = 8

#: Bits of a number of data credits, which are units of 16 bytes: up to 256.
UNIT_BITS = 9


class TlpMeta(data.Struct):
    """Row of a TLP."""

    #: Row of the local mapping table that the TLP comes from or goes to.
    row: 6
    #: Life of the row that the TLP belongs to; on the way to the fabric only.
    life: LIFE_BITS


class ClassMeta(data.Struct):
    """Row and credits of a TLP. It takes one header credit of its class."""

    #: Row of the local mapping table that the TLP comes from or goes to.
    row: 6
    #: Life of the row that the TLP belongs to; on the way to the fabric only.
    life: LIFE_BITS
    #: Class of the TLP.
    cls: TlpClass
    #: Data credits that the TLP takes, in units of 16 bytes.
    units: UNIT_BITS
