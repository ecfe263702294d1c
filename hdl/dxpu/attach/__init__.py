"""TLP boundary to PCIe: raw TLPs in one stream in, one per class out, with credits."""

from .edge import PcieEdge
from .egress import Egress
from .egress_ports import ClassStreams
from .ingress import CreditLedger, CreditLimits
from .port import PciePort, connect_egress, connect_grants
from .shared_egress import SharedEgress
from .shared_ingress import SharedIngress
from .shared_ledger import SharedLedger

__all__ = ["ClassStreams", "CreditLedger", "CreditLimits", "Egress", "PcieEdge", "PciePort",
           "SharedEgress", "SharedIngress", "SharedLedger", "connect_egress", "connect_grants"]
