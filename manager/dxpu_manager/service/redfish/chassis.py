"""Boxes as chassis, with slots and cards.

Ref: DSP0268, Chassis, PCIeSlots, PCIeDevice; DxPU paper, 3.2
"""

from typing import Any

from ...allocation import Kind
from ...lifecycle import State
from ...records import Gpu, Node, Role
from ..service import Service
from .body import Field, check
from .schemas import typed
from .shown import block_link, gpu_status, node_status, paths
from .table import ROOT, Answer, Ask, collection, link, table

__all__: list[str] = []

_CHASSIS = f"{ROOT}/Chassis/{{box}}"


def _cards(service: Service, node: Node) -> list[Gpu]:
    return sorted((gpu for gpu in service.gpus(node.serial) if gpu.state is not State.ABSENT),
                  key=lambda gpu: gpu.slot)


@table.get(f"{ROOT}/Chassis")
def boxes(ask: Ask) -> dict[str, Any]:
    """All boxes."""
    return collection("Chassis", "Boxes", [
        link("Chassis", node.name) for node in ask.service.nodes(Role.BOX)])


@table.get(_CHASSIS)
def box(ask: Ask, box: str) -> dict[str, Any]:
    """A box."""
    node = ask.node(Role.BOX, box)
    return {
        "@odata.type": typed("Chassis"), "Id": node.name, "Name": node.label or node.name,
        "ChassisType": "Expansion", "SerialNumber": node.name,
        "Status": node_status(ask.service, node),
        "PCIeSlots": link("Chassis", node.name, "PCIeSlots"),
        "PCIeDevices": link("Chassis", node.name, "PCIeDevices"),
        "Links": {"ManagedBy": [link("Managers", "pool")],
                  "Switches": [link("Fabrics", "DxPU", "Switches", node.name)]},
        "Oem": {"DxPU": {
            "@odata.type": "#DxPU.v1_0_0.Chassis", "Label": node.label, "Closed": node.closed,
            "Kind": str(node.kind), "NodeNumber": node.number, "Slots": node.rows,
            "Address": bytes.fromhex(node.mac).hex(":"), "Paths": paths(ask.service, node),
            "Trouble": ask.service.manager.down.get(node.serial)}},
    }


_PATCH = (Field("Oem.DxPU.Label", (str,)), Field("Oem.DxPU.Closed", (bool,)),
          Field("Oem.DxPU.Kind", (str,), tuple(str(kind) for kind in Kind)))


@table.patch(_CHASSIS)
def change_box(ask: Ask, box: str) -> Answer | None:
    """Name a box, close it, or say of which kind it is."""
    service, node = ask.service, ask.node(Role.BOX, box)
    values, wrong = check(ask.body, _PATCH, readable=_read(ask, node))
    if "Oem.DxPU.Label" in values:
        service.label(node, values["Oem.DxPU.Label"])
    if "Oem.DxPU.Closed" in values:
        service.manager.close(node.serial, is_closed=values["Oem.DxPU.Closed"])
    if "Oem.DxPU.Kind" in values:
        service.manager.describe(node.serial, kind=Kind(values["Oem.DxPU.Kind"]))
    return ask.partly(wrong, _read(ask, node))


def _read(ask: Ask, node: Node) -> dict[str, Any]:
    return box(ask, node.name)


@table.get(f"{_CHASSIS}/PCIeSlots")
def slots(ask: Ask, box: str) -> dict[str, Any]:
    """Slots of a box."""
    node = ask.node(Role.BOX, box)
    there = {gpu.slot: gpu for gpu in _cards(ask.service, node)}
    shown = []
    for slot in range(1, node.rows + 1):
        gpu = there.get(slot)
        one: dict[str, Any] = {
            "SlotType": "FullLength", "HotPluggable": True,
            "Location": {"PartLocation": {"ServiceLabel": f"Slot {slot}", "LocationType": "Slot",
                                          "LocationOrdinalValue": slot}},
            "Status": gpu_status(gpu) if gpu else {"State": "Absent"}}
        if gpu:
            one["Links"] = {"PCIeDevice": [link("Chassis", node.name, "PCIeDevices", slot)]}
        shown.append(one)
    return {"@odata.type": typed("PCIeSlots"), "Id": "PCIeSlots", "Name": "Slots",
            "Slots": shown}


@table.get(f"{_CHASSIS}/PCIeDevices")
def devices(ask: Ask, box: str) -> dict[str, Any]:
    """Cards in a box."""
    node = ask.node(Role.BOX, box)
    return collection("PCIeDevice", "Cards", [
        link("Chassis", node.name, "PCIeDevices", gpu.slot)
        for gpu in _cards(ask.service, node)])


@table.get(f"{_CHASSIS}/PCIeDevices/{{slot}}")
def device(ask: Ask, box: str, slot: str) -> dict[str, Any]:
    """A card in a box."""
    node = ask.node(Role.BOX, box)
    for gpu in _cards(ask.service, node):
        if str(gpu.slot) == slot:
            processor = f"{block_link(gpu)['@odata.id']}/Processors/{gpu.name}"
            return {
                "@odata.type": typed("PCIeDevice"), "Id": slot, "Name": f"GPU {gpu.name}",
                "Model": gpu.model or None, "DeviceType": "SingleFunction",
                "Status": gpu_status(gpu),
                "Slot": {"SlotType": "FullLength", "HotPluggable": True, "Location": {
                    "PartLocation": {"ServiceLabel": f"Slot {slot}", "LocationType": "Slot",
                                     "LocationOrdinalValue": gpu.slot}}},
                "Links": {"Chassis": [link("Chassis", node.name)],
                          "Processors": [{"@odata.id": processor}],
                          "Switch": link("Fabrics", "DxPU", "Switches", node.name)},
            }
    raise ask.missing(f"card in slot {slot}")
