"""Light nodes: what a manager sees of hosts, boxes and GPUs, without a proxy behind.

They speak management by frames byte for byte, by the golden model of a node; their registers have
the map of a proxy and behave as documented, so that hundreds of nodes run in one process.
"""

from .crowd import Crowd, serve
from .fabric import Fabric
from .node import BOX, HOST, Agent, Card, Shape
from .software import Software

__all__ = ["BOX", "HOST", "Agent", "Card", "Crowd", "Fabric", "Shape", "Software",
           "serve"]
