"""GPUs as resource blocks, and their composition.

Ref: DSP0268, CompositionService, ResourceBlock, Manifest; DSP2050 "Redfish composability"
"""

from dataclasses import replace
from typing import Any

from ...allocation import lacks, place
from ...errors import Conflict
from ...lifecycle import State
from ...records import Gpu, Phase, Request
from .body import Field, check
from .messages import refusal
from .requests import COLLECTION, WISH, request, request_link, wish_of
from .schemas import typed
from .shown import accepted, block_link, gpu_status, of_state, time
from .table import ROOT, Answer, Ask, collection, link, table

__all__: list[str] = []

_SERVICE = f"{ROOT}/CompositionService"
_BLOCK = f"{_SERVICE}/ResourceBlocks/{{gpu}}"


#: How many spares somebody wants: properties, and fields of the policy.
_SPARES = {"Keep": "keeps", "Probability": "probability", "RepairDays": "repair_days",
           "AnnualFailureRate": "rate"}
_CHANGES = tuple(Field(f"Oem.DxPU.Spares.{name}", types) for name, types in (
    ("Keep", (bool,)), ("Probability", (int, float)), ("RepairDays", (int, float)),
    ("AnnualFailureRate", (int, float, type(None)))))


def _spares(ask: Ask) -> dict[str, Any]:
    """The policy of spares, and the plan that follows."""
    spares = ask.service.requests.spares
    policy = spares.policy
    return {**{name: getattr(policy, field) for name, field in _SPARES.items()}, "Models": [
        {"Model": one.model or None, "Gpus": one.gpus, "Failures": one.failures,
         "GpuYears": round(one.years, 4), "AnnualFailureRate": round(one.rate, 6),
         "InRepair": round(one.mean, 6), "Wanted": one.wanted, "Held": one.held,
         "Probability": round(one.covered, 9)} for one in spares.plan()]}


@table.get(_SERVICE)
def service(ask: Ask) -> dict[str, Any]:
    """The service, with the plan of spares."""
    return {
        "@odata.type": typed("CompositionService"), "Id": "CompositionService",
        "Name": "Composition", "ServiceEnabled": True, "AllowOverprovisioning": False,
        "AllowZoneAffinity": False, "Status": {"State": "Enabled", "Health": "OK"},
        **{name: link("CompositionService", name) for name in (
            "ResourceBlocks", "ResourceZones", "FreePool", "ActivePool",
            "CompositionReservations")},
        "Actions": {"#CompositionService.Compose": {
            "target": f"{_SERVICE}/Actions/CompositionService.Compose"}},
        "Oem": {"DxPU": {"@odata.type": "#DxPU.v1_0_0.CompositionService",
                         "Requests": link(*COLLECTION), "Spares": _spares(ask)}},
    }


@table.patch(_SERVICE)
def change_service(ask: Ask) -> Answer | None:
    """Say how many spares are wanted, and whether the manager keeps them by itself."""
    values, wrong = check(ask.body, _CHANGES, readable=service(ask))
    spares = ask.service.requests.spares
    spares.policy = replace(spares.policy, **{
        _SPARES[name.rpartition(".")[2]]: value for name, value in values.items()})
    ask.service.requests.turn()
    spares.turn()
    return ask.partly(wrong, service(ask))


# Blocks -----------------------------------------------------------------------------------------


def _blocks(ask: Ask, pool: str = "") -> list[dict[str, str]]:
    return [block_link(gpu) for gpu in ask.service.gpus() if gpu.state is not State.ABSENT
            and pool in ("", of_state[gpu.state][1])]


@table.get(f"{_SERVICE}/ResourceBlocks")
def blocks(ask: Ask) -> dict[str, Any]:
    """All GPUs."""
    return collection("ResourceBlock", "GPUs", _blocks(ask))


@table.get(f"{_SERVICE}/FreePool")
def free_pool(ask: Ask) -> dict[str, Any]:
    """GPUs that can be given away."""
    return collection("ResourceBlock", "Free GPUs", _blocks(ask, "Free"))


@table.get(f"{_SERVICE}/ActivePool")
def active_pool(ask: Ask) -> dict[str, Any]:
    """GPUs of hosts."""
    return collection("ResourceBlock", "GPUs of hosts", _blocks(ask, "Active"))


#: Actions of an operator at a GPU.
_ACTIONS = ("Admit", "SetAside", "Spare", "Unspare", "Retire", "GiveUp")


@table.get(_BLOCK)
def block(ask: Ask, gpu: str) -> dict[str, Any]:
    """A GPU."""
    held = ask.record(Gpu, gpu, "GPU")
    state, pool, _, _ = of_state[held.state]
    host = f"{held.binding.host:08x}" if held.binding else None
    actions = f"{_SERVICE}/ResourceBlocks/{held.name}/Actions/Oem"
    return {
        "@odata.type": typed("ResourceBlock"), "Id": held.name, "Name": f"GPU {held.name}",
        "ResourceBlockType": ["Processor"], "Pool": pool, "Status": gpu_status(held),
        "CompositionStatus": {
            "CompositionState": state, "Reserved": held.state is State.RESERVED,
            "SharingCapable": False, "MaxCompositions": 1,
            "NumberOfCompositions": int(host is not None)},
        "Processors": [{"@odata.id": f"{_SERVICE}/ResourceBlocks/{held.name}/Processors/"
                                     f"{held.name}"}],
        "Links": {"ComputerSystems": [link("Systems", host)] if host else [],
                  "Chassis": [link("Chassis", f"{held.box:08x}")],
                  "Zones": [link("CompositionService", "ResourceZones", "pool")]},
        "Actions": {"Oem": {f"#DxPU.{name}": {"target": f"{actions}/DxPU.{name}"}
                            for name in _ACTIONS}},
        "Oem": {"DxPU": {
            "@odata.type": "#DxPU.v1_0_0.ResourceBlock", "State": str(held.state),
            "Cause": str(held.cause), "Since": time(held.since), "Model": held.model,
            "Box": f"{held.box:08x}", "Slot": held.slot, "Host": host,
            "Port": held.binding.port if held.binding else None,
            "Path": held.binding.path if held.binding else None, "Generation": held.generation,
            "Task": held.task or None, "Request": held.request or None,
            "Broken": held.broken or None, "SerialNumber": held.serial or None,
            **_evidence(ask, held)}},
    }


def _evidence(ask: Ask, gpu: Gpu) -> dict[str, Any]:
    """The evidence that a host has a GPU, seen and missing, with times."""
    binding, verdict = gpu.binding, ask.service.manager.verdict(gpu)
    missing = verdict if verdict is not None and verdict.lacks else None
    return {
        "Evidence": list(verdict.seen if verdict else binding.seen if binding else ()),
        "WindowsSince": time(binding.learnt) if binding and binding.learnt else None,
        "Confirmed": time(binding.word) if binding and binding.word else None,
        "Missing": missing.lacks if missing else None,
        "MissingSince": time(missing.since) if missing else None,
        "MissingUntil": time(missing.due) if missing and missing.due is not None else None,
    }


@table.get(f"{_BLOCK}/Processors/{{name}}")
def processor(ask: Ask, gpu: str, name: str) -> dict[str, Any]:
    """The GPU of a block."""
    held = ask.record(Gpu, gpu, "GPU")
    if name != gpu:
        raise ask.missing(f"processor {name}")
    return {"@odata.type": typed("Processor"), "Id": held.name, "Name": f"GPU {held.name}",
            "ProcessorType": "GPU", "Model": held.model or None,
            "SerialNumber": held.serial or None, "Status": gpu_status(held)}


@table.patch(_BLOCK)
def change_block(ask: Ask, gpu: str) -> Answer | None:
    """Say which model a GPU is."""
    held = ask.record(Gpu, gpu, "GPU")
    values, wrong = check(ask.body, (Field("Oem.DxPU.Model", (str,)),), readable=block(ask, gpu))
    ask.service.manager.describe(held.box, models={held.slot: values["Oem.DxPU.Model"]})
    return ask.partly(wrong, block(ask, gpu))


@table.post(f"{_BLOCK}/Actions/Oem/{{action}}")
def act(ask: Ask, gpu: str, action: str) -> Answer | None:
    """Admit a GPU, set it aside, keep it as a spare or no longer, retire it, or give it up as
    broken."""
    held, manager = ask.record(Gpu, gpu, "GPU"), ask.service.manager
    name = action.removeprefix("DxPU.")
    if name not in _ACTIONS or not action.startswith("DxPU."):
        raise ask.missing(f"action {action}")
    if name == "GiveUp":
        values, _ = check(ask.body, (Field("Reason", (str,)),), action=True)
        reason = values.get("Reason") or "given up by an operator"
        return accepted(manager.give_up(held.name, reason), ask.service)
    check(ask.body, (), action=True)
    if name == "Admit":
        manager.admit(held.name)
    elif name == "SetAside":
        manager.set_aside(held.name)
    elif name == "Retire":
        manager.retire(held.name)
    else:
        manager.spare(held.name, is_spare=name == "Spare")
    return None


# Zones ------------------------------------------------------------------------------------------


@table.get(f"{_SERVICE}/ResourceZones")
def zones(ask: Ask) -> dict[str, Any]:
    """All zones: one, as each host can have each GPU."""
    return collection("Zone", "Zones", [link("CompositionService", "ResourceZones", "pool")])


@table.get(f"{_SERVICE}/ResourceZones/pool")
def zone(ask: Ask) -> dict[str, Any]:
    """The zone of all GPUs."""
    return {"@odata.type": typed("Zone"), "Id": "pool", "Name": "The pool",
            "ZoneType": "ZoneOfResourceBlocks", "Status": {"State": "Enabled", "Health": "OK"},
            "Links": {"ResourceBlocks": _blocks(ask)}}


# Reservations -----------------------------------------------------------------------------------


def _is_kept(request: Request) -> bool:
    return request.keeps and request.phase in (Phase.WAITING, Phase.RESERVED)


@table.get(f"{_SERVICE}/CompositionReservations")
def reservations(ask: Ask) -> dict[str, Any]:
    """Requests that keep GPUs for a host, or will."""
    return collection("CompositionReservation", "Reservations", [
        link("CompositionService", "CompositionReservations", one.number)
        for one in ask.service.pool.all(Request) if _is_kept(one)])


def _reservation(ask: Ask, name: str) -> Request:
    held = ask.record(Request, name, "reservation")
    if not _is_kept(held):
        raise ask.missing(f"reservation {name}")
    return held


@table.get(f"{_SERVICE}/CompositionReservations/{{name}}")
def reservation(ask: Ask, name: str) -> dict[str, Any]:
    """A reservation."""
    held = _reservation(ask, name)
    return {"@odata.type": typed("CompositionReservation"), "Id": held.name,
            "Name": f"Reservation {held.number}", "Description": str(held.wish),
            "Client": f"{held.wish.host:08x}", "ReservationTime": time(held.since),
            "ReservedResourceBlocks": [block_link(gpu) for gpu in held.gpus]}


@table.delete(f"{_SERVICE}/CompositionReservations/{{name}}")
def end_reservation(ask: Ask, name: str) -> None:
    """Keep nothing any more."""
    ask.service.requests.give_back(_reservation(ask, name).number)


# Compose ----------------------------------------------------------------------------------------

_COMPOSE = (Field("RequestFormat", (str,), ("Manifest",), required=True),
            Field("RequestType", (str,), ("Preview", "PreviewReserve", "Apply"), required=True),
            Field("Manifest", (dict,)), Field("ReservationId", (str,)))


@table.post(f"{_SERVICE}/Actions/CompositionService.Compose")
def compose(ask: Ask) -> Answer:
    """Preview, keep, or fulfil the wishes of a manifest.

    A stanza of type ``ComposeResource`` has in ``Request`` what a request has: ``Host``, ``Count``
    and so on.
    """
    values, _ = check(ask.body, _COMPOSE, action=True)
    kind, requests = values["RequestType"], ask.service.requests
    if "ReservationId" in values:
        held = _reservation(ask, values["ReservationId"])
        if kind != "Apply":
            raise refusal(400, "PropertyValueError", "a reservation is applied, not previewed",
                          "RequestType")
        taken = requests.take_up(held.number)
        return Answer(202, {"@odata.id": request_link(taken.number)["@odata.id"],
                            **request(ask, taken.name)},
                      {"Location": request_link(taken.number)["@odata.id"]})
    stanzas = values.get("Manifest", {}).get("Stanzas")
    if not isinstance(stanzas, list) or len(stanzas) != 1 or not isinstance(stanzas[0], dict):
        raise refusal(400, "PropertyMissing", "Manifest.Stanzas must have one stanza",
                      "Manifest/Stanzas")
    wanted = stanzas[0].get("Request")
    if stanzas[0].get("StanzaType") != "ComposeResource" or not isinstance(wanted, dict):
        raise refusal(400, "PropertyValueError",
                      "the stanza must be of type ComposeResource, and have a Request",
                      "Manifest/Stanzas")
    asked, _ = check(wanted, WISH, action=True)
    wish = wish_of(ask, asked)
    manifest = {**values["Manifest"]}
    if kind == "Preview":
        free, _ = requests.inventory()
        found = place(wish, free)
        if found is None:
            raise Conflict(lacks(wish, free))
        return Answer(200, {"RequestFormat": "Manifest", "RequestType": kind, "Manifest": {
            **manifest, "Stanzas": [{**stanzas[0], "Response": {
                "Links": {"ResourceBlocks": [block_link(name) for name in found]}}}]}})
    made = requests.ask(wish, priority=asked.get("Priority", 0),
                        lease=asked.get("LeaseSeconds"), keeps=kind == "PreviewReserve")
    requests.turn()
    body = {"RequestFormat": "Manifest", "RequestType": kind, "Manifest": {
        **manifest, "Stanzas": [{**stanzas[0], "Response": request_link(made.number)}]}}
    if kind == "PreviewReserve":
        body["ReservationId"] = made.name
    return Answer(202 if kind == "Apply" else 200, body,
                  {"Location": request_link(made.number)["@odata.id"]})
