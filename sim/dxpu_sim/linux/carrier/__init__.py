"""A stock Linux kernel in stock QEMU above any PCIe endpoint, whose TLPs pass through a socket.

The carrier needs no gateware, no model and no simulator of this project: what is below the socket
is whatever speaks its few messages. Ref: docs/reference/linux-carrier.md

:mod:`.images` gets QEMU and the kernel, :mod:`.guest` runs them, :mod:`.console` is the guest's
shell. :mod:`.remote` and :mod:`.vmd` are the PCI device that QEMU shows the kernel;
:mod:`.root_port` turns its accesses into TLPs, :mod:`.domain` connects both. :mod:`.edge` is the
socket below the root port. :mod:`.complaints` judges the kernel's messages.
"""

from .carrier import Carrier
from .edge import Edge, EdgeClosed, EdgeError

__all__ = ["Carrier", "Edge", "EdgeClosed", "EdgeError"]
