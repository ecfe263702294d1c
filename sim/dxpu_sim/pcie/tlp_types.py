"""Quick look-ups of the types of cocotbext-pcie's TLPs; their results are the same.

Each model that a TLP passes compares the TLP's type with sets of types, some seventy times in all.
By default each comparison computes the hash of an enum's member in Python, and each reading of a
TLP's type searches an enum. That takes a quarter of the time of all models.
"""

from cocotbext.pcie.core import tlp as library
from cocotbext.pcie.core.tlp import Tlp, TlpType

__all__ = ["quicken"]

_TYPES = {kind.value: kind for kind in TlpType}


def quicken() -> None:
    """Make the look-ups quick. Before that, no set or dict of types may be made."""
    if TlpType.__hash__ is object.__hash__:
        return
    of_class = list(library.tlp_type_fc_type_mapping.items())
    TlpType.__hash__ = object.__hash__  # members are equal only if they are the same object
    library.tlp_type_fc_type_mapping.clear()
    library.tlp_type_fc_type_mapping.update(of_class)
    Tlp.fmt_type = property(_kind, Tlp.fmt_type.fset)


def _kind(tlp):
    kind = tlp.fmt, tlp.type
    return _TYPES[kind] if kind in _TYPES else TlpType(kind)
