"""Registries of messages.

Ref: DSP0268, MessageRegistryFile; DSP0266, 9.10 "Registries"
"""

from typing import Any

from .messages import BASE, OWN, REGISTRY, refusal
from .schemas import typed
from .table import ROOT, Ask, collection, link, table

__all__: list[str] = []

_FILES = {
    "Base": (BASE, {"PublicationUri":
                    f"https://redfish.dmtf.org/registries/{BASE}.0.json"}),
    "DxPU": (OWN, {"Uri": f"{ROOT}/Registries/DxPU/{OWN}.0.json"}),
}


@table.get(f"{ROOT}/Registries")
def registries(ask: Ask) -> dict[str, Any]:
    """All registries."""
    return collection("MessageRegistryFile", "Registries", [
        link("Registries", name) for name in _FILES])


@table.get(f"{ROOT}/Registries/{{name}}")
def registry_file(ask: Ask, name: str) -> dict[str, Any]:
    """Where a registry is."""
    if name not in _FILES:
        raise refusal(404, "ResourceMissingAtURI", f"there is no registry {name}", ask.path)
    version, where = _FILES[name]
    return {"@odata.type": typed("MessageRegistryFile"), "Id": name,
            "Name": f"Messages of {name}", "Languages": ["en"], "Registry": version,
            "Location": [{"Language": "en", **where}]}


@table.get(f"{ROOT}/Registries/DxPU/{OWN}.0.json")
def registry(ask: Ask) -> dict[str, Any]:
    """The own registry."""
    return {
        "@odata.type": typed("MessageRegistry"), "Id": f"{OWN}.0", "Name": "Messages of a pool",
        "Language": "en", "Description": "Messages of a DxPU pool", "RegistryPrefix": "DxPU",
        "RegistryVersion": "1.0.0", "OwningEntity": "DXPU",
        "Messages": {key: {
            "Description": f"Told when {key} is so.", "Message": text.said,
            "MessageSeverity": text.severity, "NumberOfArgs": len(text.arguments),
            "ParamTypes": ["string"] * len(text.arguments), "Resolution": text.resolution}
            for key, text in REGISTRY.items()},
    }
