"""Nodes of a :class:`~dxpu_sim.system.design.System`: numbers, and what the factory gave them.

Not in the design, as a bench that needs a number would import the whole gateware for it.
"""

__all__ = ["BOX_NODE", "HOST_NODE", "factory_of"]

#: Node numbers of the first host and of the first box; further nodes follow.
HOST_NODE, BOX_NODE = 0x001, 0x101


def factory_of(node):
    """Key, MAC address and serial number of the node that shall have this number.

    By these addresses all nodes announce themselves soon after a reset: see
    :func:`dxpu_model.management.first_announcement`.
    """
    return (bytes([node >> 8, node & 0xFF, *range(14)]),
            bytes([0x02, 0x51, node >> 8, 0, 0, node & 0xFF]), 0x5E00_0000 | node)
