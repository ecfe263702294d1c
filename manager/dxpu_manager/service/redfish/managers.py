"""The manager itself.

Ref: DSP0268, Manager
"""

from time import time as now
from typing import Any

from ...records import Role
from .schemas import typed
from .shown import time
from .table import ROOT, Ask, collection, link, table

__all__: list[str] = []


@table.get(f"{ROOT}/Managers")
def managers(ask: Ask) -> dict[str, Any]:
    """All managers: this one."""
    return collection("Manager", "Managers", [link("Managers", "pool")])


@table.get(f"{ROOT}/Managers/pool")
def manager(ask: Ask) -> dict[str, Any]:
    """The manager."""
    service = ask.service
    health = service.health()
    return {
        "@odata.type": typed("Manager"), "Id": "pool", "Name": "DxPU_MANAGER",
        "ManagerType": "Service", "Model": "DXPU", "Manufacturer": "DXPU",
        "UUID": service.uuid, "ServiceEntryPointUUID": service.uuid,
        "DateTime": time(now()), "DateTimeLocalOffset": "+00:00",
        "LastResetTime": time(service.started), "PowerState": "On",
        "Status": {"State": "Enabled", "Health": "OK" if health["ready"] else "Critical"},
        "Links": {"ManagerForServers": [], "ManagerForSwitches": [
            link("Fabrics", "DxPU", "Switches", node.name)
            for role in Role for node in service.nodes(role)]},
        "Oem": {"DxPU": {"@odata.type": "#DxPU.v1_0_0.Manager",
                         "Epoch": service.pool.store.epoch,
                         "Trouble": service.pool.trouble or None}},
    }
