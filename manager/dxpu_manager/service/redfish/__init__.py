"""The pool as a Redfish service.

Ref: DMTF DSP0266 (protocol), DSP0268 (schemas); DxPU paper, 3.2 and 3.3.1
"""

from .protocol import Redfish

__all__ = ["Redfish"]
