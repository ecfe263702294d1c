"""Events: a stream, and subscriptions.

Ref: DSP0266, 12 "Eventing"; DSP0268, EventService, EventDestination, Event; WHATWG HTML, 9.2
"Server-sent events"
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from starlette.responses import StreamingResponse

from ...records import Subscription
from ..hub import Notice
from ..service import Service
from ..webhooks import POLICIES
from .body import Field, check
from .messages import OWN, REGISTRY, message, refusal
from .requests import COLLECTION
from .schemas import typed
from .shown import time
from .table import ROOT, Answer, Ask, collection, link, table

__all__ = ["content", "stream"]

_SUBSCRIPTIONS = f"{ROOT}/EventService/Subscriptions"
#: Seconds after which a quiet stream says that it is there.
_QUIET = 15.0
#: Message, type of the resource, and its address, by kind of record.
_KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "gpu": ("GpuChanged", "ResourceBlock", ("CompositionService", "ResourceBlocks")),
    "node": ("NodeChanged", "Switch", ("Fabrics", "DxPU", "Switches")),
    "reach": ("NodeReach", "Switch", ("Fabrics", "DxPU", "Switches")),
    "stranger": ("Stranger", "Manager", ()),
    "task": ("TaskChanged", "Task", ("TaskService", "Tasks")),
    "request": ("RequestChanged", "DxPURequest", COLLECTION),
    "account": ("AccountChanged", "ManagerAccount", ("AccountService", "Accounts")),
    "subscription": ("SubscriptionChanged", "EventDestination",
                     ("EventService", "Subscriptions")),
}


def content(notice: Notice, context: str = "") -> dict[str, Any]:
    """An event as it is sent."""
    key, _, place = _KINDS.get(notice.kind, ("ServiceChanged", "Manager", ()))
    one = message(f"{OWN}.{key}", notice.said)
    made: dict[str, Any] = {
        "EventType": "Other", "MemberId": "0", "EventId": str(notice.number),
        "EventTimestamp": time(notice.time),
        **{name: one[name] for name in ("MessageId", "Message", "MessageArgs",
                                        "MessageSeverity")}}
    if place and (notice.record is not None or notice.kind == "reach"):
        made["OriginOfCondition"] = link(*place, notice.name)
    if notice.who:
        made["Oem"] = {"DxPU": {"Who": notice.who}}
    return {"@odata.type": typed("Event"), "Id": str(notice.number), "Name": "Change of the pool",
            "Context": context, "Events": [made]}


def wanted(subscription: Subscription, notice: Notice) -> dict[str, Any] | None:
    """An event for a subscription, unless the subscriber does not want it."""
    _, kind, _ = _KINDS.get(notice.kind, ("", "Manager", ()))
    if subscription.prefixes and OWN.split(".")[0] not in subscription.prefixes:
        return None
    if subscription.resources and kind not in subscription.resources:
        return None
    return content(notice, subscription.context)


@table.get(f"{ROOT}/EventService")
def service(ask: Ask) -> dict[str, Any]:
    """The service of events."""
    webhooks = ask.service.webhooks
    return {
        "@odata.type": typed("EventService"), "Id": "EventService", "Name": "Events",
        "ServiceEnabled": True, "Status": {"State": "Enabled", "Health": "OK"},
        "DeliveryRetryAttempts": webhooks.attempts,
        "DeliveryRetryIntervalSeconds": int(webhooks.interval),
        "EventFormatTypes": ["Event"], "RegistryPrefixes": [OWN.split(".")[0]],
        "ResourceTypes": sorted({kind for _, kind, _ in _KINDS.values()} - {"DxPURequest"}),
        "SubordinateResourcesSupported": False, "IncludeOriginOfConditionSupported": False,
        "ServerSentEventUri": f"{ROOT}/EventService/SSE",
        "SSEFilterPropertiesSupported": {
            name: False for name in ("EventFormatType", "MessageId", "MetricReportDefinition",
                                     "OriginResource", "RegistryPrefix", "ResourceType",
                                     "SubordinateResources")},
        "Subscriptions": link("EventService", "Subscriptions"),
        "Actions": {"#EventService.SubmitTestEvent": {
            "target": f"{ROOT}/EventService/Actions/EventService.SubmitTestEvent"}},
        "Oem": {"DxPU": {"@odata.type": "#DxPU.v1_0_0.EventService",
                         "Newest": ask.service.pool.newest}},
    }


@table.patch(f"{ROOT}/EventService", "ConfigureManager")
def change_service(ask: Ask) -> Answer | None:
    """Set attempts to deliver, and the time between them."""
    values, wrong = check(ask.body, (
        Field("DeliveryRetryAttempts", (int,), least=1),
        Field("DeliveryRetryIntervalSeconds", (int,), least=1)), readable=service(ask))
    webhooks = ask.service.webhooks
    if "DeliveryRetryAttempts" in values:
        webhooks.attempts = values["DeliveryRetryAttempts"]
        ask.service.set("delivery_attempts", str(webhooks.attempts))
    if "DeliveryRetryIntervalSeconds" in values:
        webhooks.interval = float(values["DeliveryRetryIntervalSeconds"])
        ask.service.set("delivery_interval", str(values["DeliveryRetryIntervalSeconds"]))
    return ask.partly(wrong, service(ask))


@table.post(f"{ROOT}/EventService/Actions/EventService.SubmitTestEvent", "ConfigureManager")
def submit_test(ask: Ask) -> None:
    """Make an event that means nothing."""
    check(ask.body, (
        Field("MessageId", (str,)), Field("Message", (str,)), Field("MessageArgs", (list,)),
        Field("MessageSeverity", (str,)), Field("Severity", (str,)), Field("EventId", (str,)),
        Field("EventGroupId", (int,)), Field("EventTimestamp", (str,)),
        Field("EventType", (str,)), Field("OriginOfCondition", (str,))), action=True)
    ask.service.set("test_event", str(int(ask.service.pool.clock())))


# Stream -----------------------------------------------------------------------------------------


@table.get(f"{ROOT}/EventService/SSE")
def sse(ask: Ask) -> dict[str, Any]:
    """All events as they come."""
    return {"stream": stream(ask.service, ask.after, lambda: ask.service.accounts.knows(
        ask.user, ask.session))}


def stream(service: Service, after: int | None,
           may_read: Callable[[], bool]) -> StreamingResponse:
    """A stream of events; those with numbers above ``after`` first, if it is given. It ends when
    the reader has lost the right."""
    async def lines() -> AsyncIterator[str]:
        yield ": events of a DxPU pool\n\n"
        async for notice in service.hub.follow(after, quiet=_QUIET):
            if not may_read():
                return
            if notice is None:
                yield ": quiet\n\n"
            else:
                yield f"id: {notice.number}\ndata: {json.dumps(content(notice))}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


# Subscriptions ----------------------------------------------------------------------------------


@table.get(_SUBSCRIPTIONS)
def subscriptions(ask: Ask) -> dict[str, Any]:
    """All subscriptions."""
    return collection("EventDestination", "Subscriptions", [
        link("EventService", "Subscriptions", one.number)
        for one in ask.service.webhooks.all()])


@table.get(f"{_SUBSCRIPTIONS}/{{name}}")
def subscription(ask: Ask, name: str) -> dict[str, Any]:
    """A subscription; the headers in it are secrets."""
    held = ask.record(Subscription, name, "subscription")
    return {
        "@odata.type": typed("EventDestination"), "Id": held.name,
        "Name": f"Subscription {held.number}", "Destination": held.destination,
        "Context": held.context, "Protocol": "Redfish", "SubscriptionType": "RedfishEvent",
        "EventFormatType": "Event", "RegistryPrefixes": list(held.prefixes),
        "ResourceTypes": list(held.resources), "DeliveryRetryPolicy": held.policy,
        "HttpHeaders": [], "VerifyCertificate": held.verify,
        "Status": {"State": "Disabled" if held.suspended else "Enabled",
                   "Health": "Critical" if held.suspended else "OK"},
        "Actions": {"#EventDestination.ResumeSubscription": {
            "target": f"{_SUBSCRIPTIONS}/{held.name}/Actions/"
                      "EventDestination.ResumeSubscription"}},
    }


@table.post(_SUBSCRIPTIONS, "ConfigureManager")
def subscribe(ask: Ask) -> Answer:
    """Begin to send events somewhere."""
    values, _ = check(ask.body, (
        Field("Destination", (str,), required=True), Field("Context", (str, type(None))),
        Field("Protocol", (str,), ("Redfish",), required=True),
        Field("SubscriptionType", (str,), ("RedfishEvent",)),
        Field("EventFormatType", (str,), ("Event",)), Field("RegistryPrefixes", (list,)),
        Field("ResourceTypes", (list,)), Field("EventTypes", (list,)),
        Field("HttpHeaders", (list,)), Field("DeliveryRetryPolicy", (str,), POLICIES),
        Field("VerifyCertificate", (bool,)), Field("Name", (str,)),
        Field("Description", (str,))))
    headers: list[tuple[str, str]] = []
    for one in values.get("HttpHeaders", ()):
        if not isinstance(one, dict) or not all(isinstance(text, str) for text in one.values()):
            raise refusal(400, "PropertyValueTypeError",
                          "HttpHeaders has objects with a name and a text", str(one),
                          "HttpHeaders")
        headers += one.items()
    for prefix in values.get("RegistryPrefixes", ()):
        if prefix != OWN.split(".")[0]:
            raise refusal(400, "PropertyValueNotInList",
                          f"events have messages of the registry {OWN.split('.')[0]} alone, not "
                          f"of {prefix}", str(prefix), "RegistryPrefixes")
    made = ask.service.webhooks.subscribe(
        destination=values["Destination"], context=values.get("Context") or "",
        prefixes=tuple(values.get("RegistryPrefixes", ())),
        resources=tuple(map(str, values.get("ResourceTypes", ()))), headers=tuple(headers),
        policy=values.get("DeliveryRetryPolicy", POLICIES[0]),
        verify=values.get("VerifyCertificate", True))
    address = link("EventService", "Subscriptions", made.number)["@odata.id"]
    return Answer(201, {"@odata.id": address, **subscription(ask, made.name)},
                  {"Location": address})


@table.patch(f"{_SUBSCRIPTIONS}/{{name}}", "ConfigureManager")
def change_subscription(ask: Ask, name: str) -> Answer | None:
    """Change what a subscriber is told with each event, or what happens if it does not listen."""
    held = ask.record(Subscription, name, "subscription")
    values, wrong = check(ask.body, (
        Field("Context", (str, type(None))), Field("DeliveryRetryPolicy", (str,), POLICIES),
        Field("VerifyCertificate", (bool,))), readable=subscription(ask, name))
    held = replace(held, context=values.get("Context", held.context) or "",
                   policy=values.get("DeliveryRetryPolicy", held.policy),
                   verify=values.get("VerifyCertificate", held.verify))
    ask.service.webhooks.put(held, "is changed")
    return ask.partly(wrong, subscription(ask, name))


@table.post(f"{_SUBSCRIPTIONS}/{{name}}/Actions/EventDestination.ResumeSubscription",
            "ConfigureManager")
def resume(ask: Ask, name: str) -> None:
    """Send events again."""
    ask.service.webhooks.resume(ask.record(Subscription, name, "subscription").number)


@table.delete(f"{_SUBSCRIPTIONS}/{{name}}", "ConfigureManager")
def unsubscribe(ask: Ask, name: str) -> None:
    """Send nothing more."""
    ask.service.webhooks.remove(ask.record(Subscription, name, "subscription").name)


assert all(key in REGISTRY for key, _, _ in _KINDS.values())
