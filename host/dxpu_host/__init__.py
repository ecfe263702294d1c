"""A host in software: devices in the slots of DXPU boxes, from a PC with an ordinary network card.

See docs/reference/host.md.
"""

from .device import Bar, Device
from .errors import Aborted, HostError, PortError, SessionLost, SlotLost, Timeout, Unsupported
from .host import Host
from .memory import Memory, Region
from .port import EthernetPort, Port
from .sockets import SocketPort
from .timers import Timers

__all__ = ["Aborted", "Bar", "Device", "EthernetPort", "Host", "HostError", "Memory", "Port",
           "PortError", "Region", "SessionLost", "SlotLost", "SocketPort", "Timeout", "Timers",
           "Unsupported"]
