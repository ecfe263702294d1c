"""A stock Linux kernel in stock QEMU above any PCIe endpoint, whose TLPs pass through a socket.

The carrier needs no gateware, no model and no simulator of this project: what is below the socket
is whatever speaks its few messages. Ref: docs/reference/linux-carrier.md
"""

from .carrier import Carrier
from .edge import Edge, EdgeClosed, EdgeError

__all__ = ["Carrier", "Edge", "EdgeClosed", "EdgeError"]
