"""Hosts as computer systems, and GPUs as processors in them.

Ref: DSP0268, ComputerSystem, Processor; DSP2050 "Redfish composability"
"""

import asyncio
import re
from typing import Any

from ...allocation import Wish
from ...errors import Conflict, Impossible
from ...lifecycle import State
from ...records import Gpu, Node, Phase, Progress, Role
from ..accounts import AGENT, CONFIRM
from ..service import Service
from .body import Field, check
from .messages import refusal
from .schemas import typed
from .shown import accepted, block_link, endpoint_link, gpu_status, node_status, of_link, paths
from .table import ROOT, Answer, Ask, collection, link, table

__all__: list[str] = []

_SYSTEM = f"{ROOT}/Systems/{{host}}"


@table.get(f"{ROOT}/Systems")
def systems(ask: Ask) -> dict[str, Any]:
    """All hosts."""
    return collection("ComputerSystem", "Hosts", [
        link("Systems", node.name) for node in ask.service.nodes(Role.HOST)])


@table.get(_SYSTEM)
def system(ask: Ask, host: str) -> dict[str, Any]:
    """A host."""
    service, node = ask.service, ask.node(Role.HOST, host)
    bound = service.bound(node.serial)
    actions = f"{ROOT}/Systems/{node.name}/Actions"
    return {
        "@odata.type": typed("ComputerSystem"), "Id": node.name, "Name": node.label or node.name,
        "SystemType": "Physical", "SerialNumber": node.name,
        "Status": node_status(service, node),
        "Processors": link("Systems", node.name, "Processors"),
        "Links": {"ResourceBlocks": [block_link(gpu) for _, gpu, _ in bound],
                  "Endpoints": [endpoint_link(node)],
                  "ManagedBy": [link("Managers", "pool")]},
        "Actions": {
            "#ComputerSystem.AddResourceBlock": {
                "target": f"{actions}/ComputerSystem.AddResourceBlock"},
            "#ComputerSystem.RemoveResourceBlock": {
                "target": f"{actions}/ComputerSystem.RemoveResourceBlock"},
            "Oem": {f"#DxPU.{name}": {"target": f"{actions}/Oem/DxPU.{name}"}
                    for name in ("Attach", "Detach", "Confirm")},
        },
        "Oem": {"DxPU": {
            "@odata.type": "#DxPU.v1_0_0.ComputerSystem", "Label": node.label,
            "Closed": node.closed, "Agent": node.agent, "NodeNumber": node.number,
            "Ports": node.rows, "FreePorts": node.rows - len(bound),
            "Address": bytes.fromhex(node.mac).hex(":"), "Paths": paths(service, node),
            "Trouble": service.manager.down.get(node.serial)}},
    }


@table.get(f"{_SYSTEM}/Processors")
def processors(ask: Ask, host: str) -> dict[str, Any]:
    """GPUs of a host."""
    node = ask.node(Role.HOST, host)
    return collection("Processor", "GPUs", [link("Systems", node.name, "Processors", gpu.name)
                                            for _, gpu, _ in ask.service.bound(node.serial)])


@table.get(f"{_SYSTEM}/Processors/{{gpu}}")
def processor(ask: Ask, host: str, gpu: str) -> dict[str, Any]:
    """A GPU of a host."""
    node = ask.node(Role.HOST, host)
    for port, held, _ in ask.service.bound(node.serial):
        if held.name == gpu:
            return {"@odata.type": typed("Processor"), "Id": held.name,
                    "Name": f"GPU in port {port}", "ProcessorType": "GPU",
                    "Model": held.model or None, "SerialNumber": held.serial or None,
                    "Status": gpu_status(held)}
    raise ask.missing(f"GPU {gpu} of host {host}")


_PATCH = (Field("Oem.DxPU.Label", (str,)), Field("Oem.DxPU.Closed", (bool,)),
          Field("Oem.DxPU.Agent", (bool,)),
          Field("Processors.Members", (list,)), Field("Name", (str,)))


@table.patch(_SYSTEM)
async def change_system(ask: Ask, host: str) -> Answer | None:
    """Name a host, close it, say if it has an agent, or how many GPUs of a model it shall have.

    A body with ``Name`` and ``Processors`` is what CoHDI's operator sends, to the one address
    ``Systems/System``: the name is that of the host.
    """
    service = ask.service
    if "Processors" in ask.body and "Name" in ask.body:
        node = service.node(str(ask.body["Name"]), Role.HOST)
    else:
        node = ask.node(Role.HOST, host)
    shown = system(ask, node.name)
    values, wrong = check(ask.body, _PATCH, readable=shown)
    wanted = values.pop("Processors.Members", None)
    if wanted is None and "Name" in values:
        values["Oem.DxPU.Label"] = values.pop("Name")
    if "Oem.DxPU.Label" in values:
        service.label(node, values["Oem.DxPU.Label"])
    if "Oem.DxPU.Closed" in values:
        service.manager.close(node.serial, is_closed=values["Oem.DxPU.Closed"])
    if "Oem.DxPU.Agent" in values:
        service.manager.has_agent(node.serial, has_agent=values["Oem.DxPU.Agent"])
    if wanted is not None:
        for one in _wishes(wanted):
            await _have(service, node, *one)
    if wrong or host != node.name:
        body: dict[str, Any] = {"@odata.id": f"{ROOT}/Systems/{node.name}",
                                **system(ask, node.name)}
        return Answer(200, {**body, "@Message.ExtendedInfo": wrong} if wrong else body)
    return None


def _wishes(members: list[Any]) -> list[tuple[str, int]]:
    """Models and numbers of GPUs."""
    fields = (Field("ProcessorType", (str,), ("GPU",)), Field("Model", (str,)))
    wishes = []
    for one in members:
        if not isinstance(one, dict):
            raise refusal(400, "PropertyValueTypeError", "Processors.Members has objects",
                          str(one), "Processors.Members")
        count = one.get("@Redfish.RequestCount")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 256:
            raise refusal(400, "PropertyValueError",
                          "@Redfish.RequestCount is a number of GPUs, from 0 to 256",
                          "@Redfish.RequestCount")
        values, _ = check(one, fields, action=True)
        wishes.append((values.get("Model", ""), count))
    return wishes


async def _have(service: Service, node: Node, model: str, count: int) -> None:
    """Let a host have so many GPUs of a model; all is done when this returns."""
    held = [gpu.name for _, gpu, _ in service.bound(node.serial)
            if gpu.model == model or not model]
    if len(held) > count:
        task = service.manager.detach(held[count:])
        done = await service.manager.wait(task.number)
        if done.progress is not Progress.DONE:
            raise Conflict(done.said)
    elif len(held) < count:
        request = service.requests.ask(Wish(node.serial, count - len(held), model))
        service.requests.turn()
        while True:
            now = service.pool.request(request.number)
            if now.phase is Phase.HOLDING:
                return
            if now.phase is Phase.WAITING:
                why = now.said or service.requests.explain(request.number)
                service.requests.give_back(request.number)
                raise Conflict(why)
            await asyncio.sleep(0.05)


# Actions ----------------------------------------------------------------------------------------


def _named(ask: Ask, links: list[Any]) -> list[str]:
    """GPUs to which links lead."""
    names = [of_link(one) for one in links]
    for name in names:
        if f"{Gpu.KIND}/{name}" not in ask.service.pool.records:
            raise refusal(400, "PropertyValueError", f"there is no resource block {name}",
                          "ResourceBlock")
    return names


@table.post(f"{_SYSTEM}/Actions/ComputerSystem.AddResourceBlock")
def add_block(ask: Ask, host: str) -> Answer:
    """Attach a GPU."""
    node = ask.node(Role.HOST, host)
    names = _named(ask, [_block(ask, node)])
    return accepted(ask.service.manager.attach(node.serial, names), ask.service)


@table.post(f"{_SYSTEM}/Actions/ComputerSystem.RemoveResourceBlock")
def remove_block(ask: Ask, host: str) -> Answer:
    """Detach a GPU, with the consent of the host's operating system."""
    node = ask.node(Role.HOST, host)
    names = _named(ask, [_block(ask, node)])
    return _detached(ask, node, names, force=False)


def _block(ask: Ask, node: Node) -> Any:
    values, _ = check(ask.body, (
        Field("ResourceBlock", (dict,), required=True), Field("ResourceBlockETag", (str,)),
        Field("ComputerSystemETag", (str,))), action=True)
    return values["ResourceBlock"]


_SEVERAL = (Field("ResourceBlocks", (list,), required=True), Field("Force", (bool,)))


@table.post(f"{_SYSTEM}/Actions/Oem/DxPU.Attach")
def attach(ask: Ask, host: str) -> Answer:
    """Attach several GPUs, all or none."""
    node = ask.node(Role.HOST, host)
    values, _ = check(ask.body, _SEVERAL[:1], action=True)
    names = _named(ask, values["ResourceBlocks"])
    return accepted(ask.service.manager.attach(node.serial, names), ask.service)


@table.post(f"{_SYSTEM}/Actions/Oem/DxPU.Detach")
def detach(ask: Ask, host: str) -> Answer:
    """Detach several GPUs, all or none; by force, without the consent of the host."""
    node = ask.node(Role.HOST, host)
    values, _ = check(ask.body, _SEVERAL, action=True)
    return _detached(ask, node, _named(ask, values["ResourceBlocks"]),
                     force=values.get("Force", False))


#: A serial number; a PCI address, with or without the domain.
_SERIAL = re.compile(r"[!-~]{1,64}")
_ADDRESS = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?([0-9A-Fa-f]{2}):[0-9A-Fa-f]{2}\.[0-7]")


@table.post(f"{_SYSTEM}/Actions/Oem/DxPU.Confirm", CONFIRM)
async def confirm(ask: Ask, host: str) -> dict[str, Any]:
    """Say that the host sees a GPU, by name, by the address on the PCI bus of the host, or by a
    serial number.

    An account of the role HostAgent has the name of its host, and confirms nothing of others.
    """
    service = ask.service
    node = service.node(host, Role.HOST)
    if ask.user.role == AGENT and ask.user.name not in (node.name, node.label):
        raise refusal(403, "InsufficientPrivilege",
                      f"account {ask.user.name} is for the agent of another host than {node.name}")
    values, _ = check(ask.body, (Field("Gpu", (str,)), Field("Address", (str,)),
                                 Field("SerialNumber", (str,))), action=True)
    card = values.get("SerialNumber", "")
    if "SerialNumber" in values and not _SERIAL.fullmatch(card):
        raise refusal(400, "PropertyValueError", "SerialNumber has 1 to 64 characters, without "
                      "space", "SerialNumber")
    bus = None
    if "Address" in values:
        match = _ADDRESS.fullmatch(values["Address"])
        if match is None:
            raise refusal(400, "PropertyValueError",
                          "Address must be like 0000:41:00.0 or 41:00.0", "Address")
        bus = int(match[1], 16)
    gpu = await service.manager.confirm(node.serial, values.get("Gpu", ""), bus=bus, card=card)
    return {"Gpu": gpu.name, "State": str(gpu.state)}


def _detached(ask: Ask, node: Node, names: list[str], *, force: bool) -> Answer:
    for name in names:
        gpu = ask.service.pool.gpu(name)
        if gpu.state is State.ATTACHED and gpu.binding and gpu.binding.host != node.serial:
            raise Impossible(f"GPU {name} is attached to host {gpu.binding.host:08x}, not to "
                             f"{node.name}")
    return accepted(ask.service.manager.detach(names, force=force), ask.service)
