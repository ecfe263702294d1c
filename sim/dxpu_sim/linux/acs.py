"""Linux' rule for IOMMU groups: whether a function could be given to a virtual machine alone.

Behind a VMD all functions share a group, regardless of their ACS, so the rule is applied to the
output of ``lspci``. The rule is documented in ``drivers/pci/pci.c`` above ``pci_acs_enabled`` and
``pci_acs_path_enabled``: every downstream port on the way up, and every function of a multifunction
device, must have the isolation turned on. A kind of isolation missing in a port's capability counts
as not needed, except egress control.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["WANTED", "Function", "isolated", "parse"]

#: Bits of ACS Capability and Control (PCIe Base 5.0, 7.7.8.2), by their names in ``lspci``.
FLAGS = {"SrcValid": 0x01, "TransBlk": 0x02, "ReqRedir": 0x04, "CmpltRedir": 0x08,
         "UpstreamFwd": 0x10, "EgressCtrl": 0x20, "DirectTrans": 0x40}
#: Bits needed for an IOMMU group of its own.
WANTED = (FLAGS["SrcValid"] | FLAGS["ReqRedir"] | FLAGS["CmpltRedir"] | FLAGS["UpstreamFwd"])


@dataclass(frozen=True)
class Function:
    """A PCI Express function: type as in ``lspci``, and ACS registers."""

    type: str
    #: ``None`` without an ACS capability.
    capability: int | None = None
    control: int = 0
    #: The device has more than one function.
    multifunction: bool = False


def _flags(text):
    return sum(bit for name, bit in FLAGS.items() if f"{name}+" in text)


def parse(said: str) -> Function:
    """The function described by ``lspci -vvv``; of a device with one function."""
    kind = re.search(r"Express \(v2\) ([^(,]+?) *[(,]", said)
    if not kind:
        raise ValueError(f"no PCI Express function in {said!r}")
    able, control = (re.search(rf"{name}:\s+(.*)", said) for name in ("ACSCap", "ACSCtl"))
    if not able or not control:
        return Function(kind[1])
    return Function(kind[1], _flags(able[1]), _flags(control[1]))


def _enabled(function, wanted):
    if function.capability is None:
        return False
    wanted &= function.capability | FLAGS["EgressCtrl"]
    return function.control & wanted == wanted


def isolated(path: Iterable[Function], wanted: int = WANTED) -> bool:
    """Whether the first function of ``path`` is isolated from all others.

    The bridges above the function follow in ``path``, up to the end of the rule.
    """
    return all(_enabled(f, wanted)
               for f in path
               if f.type in ("Downstream Port", "Root Port") or f.multifunction)
