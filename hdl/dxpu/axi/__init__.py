"""AXI at the edge of a proxy: frames and TLPs as AXI4-Streams, registers as AXI4-Lite.

Ref: AMBA AXI4-Stream Protocol (ARM IHI 0051), AMBA AXI Protocol, AXI4-Lite (ARM IHI 0022, B1)
"""

from .lite import AxiLite, AxiLiteBridge, AxiResponse
from .mac import AxiMac, axi_mac
from .ports import AxiPorts
from .stream import AxiReceiver, AxiStream, AxiTransmitter

__all__ = ["AxiLite", "AxiLiteBridge", "AxiMac", "AxiPorts", "AxiReceiver", "AxiResponse",
           "AxiStream", "AxiTransmitter", "axi_mac"]
