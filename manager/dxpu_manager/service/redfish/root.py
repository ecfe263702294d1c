"""The root of the service, and what every OData service has.

Ref: DSP0266, 7.2; DSP0268, ServiceRoot
"""

import json
from typing import Any

from .query import FEATURES
from .schemas import OWN_SCHEMAS, STANDARD
from .table import ROOT, Answer, Ask, link, table

__all__: list[str] = []

#: What the root leads to.
_TOP = ("Systems", "Chassis", "Managers", "Fabrics", "CompositionService", "EventService",
        "SessionService", "AccountService", "Registries")


@table.get("/redfish", "")
def versions(ask: Ask) -> Answer:
    """The versions of the protocol."""
    return Answer(200, {"v1": f"{ROOT}/"})


@table.get(ROOT, "")
def root(ask: Ask) -> dict[str, Any]:
    """The root."""
    return {
        "@odata.id": f"{ROOT}/", "@odata.type": "#ServiceRoot.v1_19_0.ServiceRoot",
        "Id": "RootService", "Name": "DxPU pool", "RedfishVersion": "1.20.0",
        "UUID": ask.service.uuid, "Product": "DXPU", "Vendor": "DXPU",
        "ProtocolFeaturesSupported": FEATURES,
        **{name: link(name) for name in _TOP}, "Tasks": link("TaskService"),
        "Links": {"Sessions": link("SessionService", "Sessions"),
                  "ManagerProvidingService": link("Managers", "pool")},
    }


@table.get(f"{ROOT}/odata", "")
def odata(ask: Ask) -> Answer:
    """OData's list of what the root leads to."""
    names = {"Service": "", **{name: name for name in _TOP}, "Tasks": "TaskService",
             "Sessions": "SessionService/Sessions"}
    body = {"@odata.context": f"{ROOT}/$metadata", "value": [
        {"name": name, "kind": "Singleton", "url": f"{ROOT}/{path}"}
        for name, path in names.items()]}
    return Answer(200, {"text": json.dumps(body)},
                  {"Content-Type": "application/json; charset=utf-8"})


@table.get(f"{ROOT}/$metadata", "")
def metadata(ask: Ask) -> Answer:
    """Where the schemas of all resources are."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>',
             '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">']
    for name, versions in STANDARD.items():
        lines += _reference(f"http://redfish.dmtf.org/schemas/v1/{name}_v1.xml",
                            [name, *(f"{name}.{version}" for version in versions)])
    lines += _reference("http://redfish.dmtf.org/schemas/v1/RedfishExtensions_v1.xml",
                        ["RedfishExtensions.v1_0_0"], alias="Redfish")
    for name in OWN_SCHEMAS:
        lines += _reference(f"{ROOT}/Schemas/{name}_v1.xml", [name, f"{name}.v1_0_0"])
    lines += ["  <edmx:DataServices>",
              '    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">',
              '      <EntityContainer Name="Service" '
              'Extends="ServiceRoot.v1_19_0.ServiceContainer"/>',
              "    </Schema>", "  </edmx:DataServices>", "</edmx:Edmx>"]
    return Answer(200, {"text": "\n".join(lines) + "\n"}, {"Content-Type": "application/xml"})


def _reference(uri: str, spaces: list[str], alias: str = "") -> list[str]:
    named = f' Alias="{alias}"' if alias else ""
    return [f'  <edmx:Reference Uri="{uri}">',
            *(f'    <edmx:Include Namespace="{space}"{named}/>' for space in spaces),
            "  </edmx:Reference>"]


@table.get(f"{ROOT}/Schemas/{{name}}", "")
def schema(ask: Ask, name: str) -> Answer:
    """A schema of this service."""
    found = OWN_SCHEMAS.get(name.removesuffix("_v1.xml"))
    if found is None or not name.endswith("_v1.xml"):
        raise ask.missing(f"schema {name}")
    return Answer(200, {"text": found}, {"Content-Type": "application/xml"})
