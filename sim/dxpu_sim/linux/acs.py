"""Whether Linux would give a function to a virtual machine alone: its rule for IOMMU groups.

Behind a VMD all functions share a group, whatever their ACS says, so the rule is applied to what
``lspci`` shows. It is what ``drivers/pci/pci.c`` documents above ``pci_acs_enabled`` and
``pci_acs_path_enabled``: every downstream port on the way up, and every function of a device with
several, must have the isolation turned on; a kind of isolation that a port has no capability for
is taken as one that it does not need, except egress control.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["WANTED", "Function", "isolated", "parse"]

#: ACS Capability and Control (PCIe Base 5.0, 7.7.8.2), by the names that ``lspci`` has for them.
FLAGS = {"SrcValid": 0x01, "TransBlk": 0x02, "ReqRedir": 0x04, "CmpltRedir": 0x08,
         "UpstreamFwd": 0x10, "EgressCtrl": 0x20, "DirectTrans": 0x40}
#: What an IOMMU group of its own takes.
WANTED = (FLAGS["SrcValid"] | FLAGS["ReqRedir"] | FLAGS["CmpltRedir"] | FLAGS["UpstreamFwd"])


@dataclass(frozen=True)
class Function:
    """A PCI Express function: its type as ``lspci`` has it, and its ACS registers."""

    type: str
    #: ``None`` without an ACS capability.
    capability: int | None = None
    control: int = 0
    #: The device has more than one function.
    multifunction: bool = False


def _flags(text):
    return sum(bit for name, bit in FLAGS.items() if f"{name}+" in text)


def parse(said: str) -> Function:
    """The function that ``lspci -vvv`` describes; of a device with one function."""
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
    """Whether the first function of ``path`` is isolated from all others; the bridges above it
    follow, up to where the rule ends."""
    return all(_enabled(f, wanted)
               for f in path
               if f.type in ("Downstream Port", "Root Port") or f.multifunction)
