"""Where PCIe attaches: the boundary of raw TLPs, by class, with credits."""

from .egress import Egress
from .ingress import CreditLedger, CreditLimits
from .port import PciePort, connect_egress, connect_grants

__all__ = ["CreditLedger", "CreditLimits", "Egress", "PciePort", "connect_egress",
           "connect_grants"]
