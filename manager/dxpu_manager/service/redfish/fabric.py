"""The fabric: proxies as switches, hosts and GPUs as endpoints, and who reaches whom as zones.

Ref: DSP0268, Fabric, Switch, Port, Endpoint, Zone; DxPU paper, 3.3 (mapping tables)
"""

from typing import Any

from ...lifecycle import State
from ...records import Gpu, Node, Role
from ..service import Service
from .body import Field, check
from .messages import refusal
from .schemas import typed
from .shown import accepted, block_link, endpoint_link, gpu_status, node_status, of_link
from .table import ROOT, Answer, Ask, collection, link, table

__all__: list[str] = []

_FABRIC = f"{ROOT}/Fabrics/DxPU"


@table.get(f"{ROOT}/Fabrics")
def fabrics(ask: Ask) -> dict[str, Any]:
    """All fabrics: one."""
    return collection("Fabric", "Fabrics", [link("Fabrics", "DxPU")])


@table.get(_FABRIC)
def fabric(ask: Ask) -> dict[str, Any]:
    """The fabric."""
    return {"@odata.type": typed("Fabric"), "Id": "DxPU", "Name": "PCIe over Ethernet",
            "FabricType": "PCIe", "Status": {"State": "Enabled", "Health": "OK"},
            **{name: link("Fabrics", "DxPU", name) for name in ("Switches", "Endpoints", "Zones")},
            "Actions": {"Oem": {"#DxPU.Balance": {
                "target": f"{_FABRIC}/Actions/Oem/DxPU.Balance"}}}}


@table.post(f"{_FABRIC}/Actions/Oem/DxPU.Balance")
def balance(ask: Ask) -> dict[str, Any]:
    """Spread GPUs over the paths with a link again; no host notices."""
    check(ask.body, (), action=True)
    return {"Moved": ask.service.manager.rebalance()}


# Switches ---------------------------------------------------------------------------------------


def _nodes(service: Service) -> list[Node]:
    return sorted(service.pool.all(Node), key=lambda node: node.serial)


@table.get(f"{_FABRIC}/Switches")
def switches(ask: Ask) -> dict[str, Any]:
    """All proxies."""
    return collection("Switch", "Proxies", [link("Fabrics", "DxPU", "Switches", node.name)
                                            for node in _nodes(ask.service)])


@table.get(f"{_FABRIC}/Switches/{{node}}")
def switch(ask: Ask, node: str) -> dict[str, Any]:
    """A proxy."""
    proxy = ask.record(Node, node, "proxy")
    ends = ([endpoint_link(proxy)] if proxy.role is Role.HOST
            else [endpoint_link(gpu) for gpu in _cards(ask.service, proxy)])
    body: dict[str, Any] = {
        "@odata.type": typed("Switch"), "Id": proxy.name,
        "Name": f"{proxy.role} proxy {proxy.label or proxy.name}", "SwitchType": "PCIe",
        "SerialNumber": proxy.name, "DomainID": proxy.number,
        "SupportedProtocols": ["PCIe", "Ethernet"], "Status": node_status(ask.service, proxy),
        "Ports": link("Fabrics", "DxPU", "Switches", proxy.name, "Ports"),
        "Links": {"Endpoints": ends, "ManagedBy": [link("Managers", "pool")]},
    }
    if proxy.role is Role.BOX:
        body["Links"]["Chassis"] = link("Chassis", proxy.name)
    return body


def _cards(service: Service, box: Node) -> list[Gpu]:
    return [gpu for gpu in service.gpus(box.serial) if gpu.state is not State.ABSENT]


def _ports(node: Node) -> list[str]:
    """Names of PCIe ports: U0 of a host proxy, D0 and so on of each."""
    own = [f"D{n}" for n in range(node.rows)]
    return ["U0", *own] if node.role is Role.HOST else own


@table.get(f"{_FABRIC}/Switches/{{node}}/Ports")
def ports(ask: Ask, node: str) -> dict[str, Any]:
    """Ports of a proxy."""
    proxy = ask.record(Node, node, "proxy")
    return collection("Port", "Ports", [
        link("Fabrics", "DxPU", "Switches", proxy.name, "Ports", name)
        for name in _ports(proxy)])


@table.get(f"{_FABRIC}/Switches/{{node}}/Ports/{{port}}")
def port(ask: Ask, node: str, port: str) -> dict[str, Any]:
    """A port of a proxy: up if there is a card behind it."""
    proxy = ask.record(Node, node, "proxy")
    if port not in _ports(proxy):
        raise ask.missing(f"port {port}")
    gpu = _behind(ask.service, proxy, port)
    up = port == "U0" or gpu is not None and gpu.state is State.ATTACHED
    ends = [endpoint_link(proxy)] if port == "U0" else [endpoint_link(gpu)] if gpu else []
    return {
        "@odata.type": typed("Port"), "Id": port, "Name": f"Port {port}", "PortId": port,
        "PortProtocol": "PCIe", "PortType": "UpstreamPort" if port == "U0" else "DownstreamPort",
        "LinkStatus": "LinkUp" if up else "LinkDown",
        "Status": gpu_status(gpu) if gpu else {
            "State": "Enabled" if port == "U0" else "StandbyOffline", "Health": "OK"},
        "Links": {"AssociatedEndpoints": ends},
    }


def _behind(service: Service, proxy: Node, port: str) -> Gpu | None:
    if port == "U0":
        return None
    number = int(port[1:])
    if proxy.role is Role.HOST:
        return next((gpu for n, gpu, _ in service.bound(proxy.serial) if n == number), None)
    return next((gpu for gpu in _cards(service, proxy) if gpu.slot == number + 1), None)


# Endpoints --------------------------------------------------------------------------------------


@table.get(f"{_FABRIC}/Endpoints")
def endpoints(ask: Ask) -> dict[str, Any]:
    """All hosts and GPUs."""
    service = ask.service
    return collection("Endpoint", "Hosts and GPUs", [
        *(endpoint_link(node) for node in service.nodes(Role.HOST)),
        *(endpoint_link(gpu) for gpu in service.gpus() if gpu.state is not State.ABSENT)])


@table.get(f"{_FABRIC}/Endpoints/{{name}}")
def endpoint(ask: Ask, name: str) -> dict[str, Any]:
    """A host, or a GPU."""
    service = ask.service
    thing = service.pool.records.get(f"{Node.KIND}/{name}") or service.pool.records.get(
        f"{Gpu.KIND}/{name}")
    body: dict[str, Any] = {"@odata.type": typed("Endpoint"), "Id": name,
                            "EndpointProtocol": "PCIe"}
    if isinstance(thing, Node) and thing.role is Role.HOST:
        return {**body, "Name": f"Host {thing.label or name}",
                "Status": node_status(service, thing),
                "ConnectedEntities": [{"EntityType": "RootComplex", "EntityRole": "Initiator",
                                       "EntityLink": link("Systems", name)}],
                "Links": {"ConnectedPorts": [_port(thing, "U0")],
                          "Zones": [link("Fabrics", "DxPU", "Zones", name)]}}
    if isinstance(thing, Gpu) and thing.state is not State.ABSENT:
        box = service.pool.node(thing.box)
        zones = [link("Fabrics", "DxPU", "Zones", f"{thing.binding.host:08x}")
                 ] if thing.binding else []
        return {**body, "Name": f"GPU {name}", "Status": gpu_status(thing),
                "ConnectedEntities": [{
                    "EntityType": "Processor", "EntityRole": "Target",
                    "EntityLink": link("Chassis", box.name, "PCIeDevices", thing.slot)}],
                "Links": {"ConnectedPorts": [_port(box, f"D{thing.slot - 1}")], "Zones": zones}}
    raise ask.missing(f"endpoint {name}")


def _port(node: Node, name: str) -> dict[str, str]:
    return link("Fabrics", "DxPU", "Switches", node.name, "Ports", name)


# Zones ------------------------------------------------------------------------------------------


@table.get(f"{_FABRIC}/Zones")
def zones(ask: Ask) -> dict[str, Any]:
    """A zone for each host."""
    return collection("Zone", "What each host reaches", [
        link("Fabrics", "DxPU", "Zones", node.name) for node in ask.service.nodes(Role.HOST)])


@table.get(f"{_FABRIC}/Zones/{{host}}")
def zone(ask: Ask, host: str) -> dict[str, Any]:
    """What a host reaches: the rows of its mapping table."""
    node = ask.node(Role.HOST, host)
    bound = [gpu for _, gpu, _ in ask.service.bound(node.serial)]
    involved = [node.name, *sorted({f"{gpu.box:08x}" for gpu in bound})]
    actions = f"{_FABRIC}/Zones/{node.name}/Actions"
    return {
        "@odata.type": typed("Zone"), "Id": node.name,
        "Name": f"Host {node.label or node.name}", "ZoneType": "ZoneOfEndpoints",
        "ExternalAccessibility": "ZoneOnly", "Status": node_status(ask.service, node),
        "Links": {"Endpoints": [endpoint_link(node), *(endpoint_link(gpu) for gpu in bound)],
                  "ResourceBlocks": [block_link(gpu) for gpu in bound],
                  "InvolvedSwitches": [link("Fabrics", "DxPU", "Switches", name)
                                       for name in involved]},
        "Actions": {"#Zone.AddEndpoint": {"target": f"{actions}/Zone.AddEndpoint"},
                    "#Zone.RemoveEndpoint": {"target": f"{actions}/Zone.RemoveEndpoint"}},
    }


_ENDPOINT = (Field("Endpoint", (dict,), required=True), Field("EndpointETag", (str,)),
             Field("ZoneETag", (str,)))


def _named(ask: Ask) -> str:
    values, _ = check(ask.body, _ENDPOINT, action=True)
    name = of_link(values["Endpoint"])
    if f"{Gpu.KIND}/{name}" not in ask.service.pool.records:
        raise refusal(400, "PropertyValueError", f"there is no GPU with the endpoint {name}",
                      "Endpoint")
    return name


@table.post(f"{_FABRIC}/Zones/{{host}}/Actions/Zone.AddEndpoint")
def add_endpoint(ask: Ask, host: str) -> Answer:
    """Attach a GPU."""
    node, name = ask.node(Role.HOST, host), _named(ask)
    return accepted(ask.service.manager.attach(node.serial, [name]), ask.service)


@table.post(f"{_FABRIC}/Zones/{{host}}/Actions/Zone.RemoveEndpoint")
def remove_endpoint(ask: Ask, host: str) -> Answer:
    """Detach a GPU, with the consent of the host's operating system."""
    node, name = ask.node(Role.HOST, host), _named(ask)
    gpu = ask.service.pool.gpu(name)
    if gpu.binding is None or gpu.binding.host != node.serial:
        raise refusal(400, "PropertyValueError", f"GPU {name} is not in the zone of {node.name}",
                      "Endpoint")
    return accepted(ask.service.manager.detach([name]), ask.service)
