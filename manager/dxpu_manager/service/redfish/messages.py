"""Messages of answers: what was wrong, and what to do.

Ref: DSP0266, 8.6 "Error responses"; DSP8011 (Base message registry)
"""

from dataclasses import dataclass
from typing import Any

from ...errors import Conflict, Deposed, Impossible, NotFound, PoolError, StoreError

__all__ = ["BASE", "OWN", "REGISTRY", "Refusal", "extended", "message", "of_pool", "refusal"]

#: Registries whose messages are used, with versions as messages name them.
BASE, OWN = "Base.1.19", "DxPU.1.0"


@dataclass(frozen=True)
class Text:
    """A message of the own registry."""

    said: str
    severity: str
    resolution: str
    arguments: tuple[str, ...] = ("what is so, in a line",)


#: Messages of the registry DxPU, by key.
REGISTRY: dict[str, Text] = {
    "NotFound": Text("%1", "Critical", "Look up the name, and ask again."),
    "Conflict": Text("%1", "Critical", "Wait, or change what stands against it, and ask again."),
    "Impossible": Text("%1", "Critical", "Ask for something else."),
    "StoreTrouble": Text("%1", "Critical", "Mend what the manager's store lacks, and ask again."),
    "Deposed": Text("%1", "Critical", "Ask the manager that leads now."),
    "TaskFailed": Text("%1", "Critical", "See the reason, and ask again."),
    "GpuChanged": Text("%1", "OK", "None."),
    "NodeChanged": Text("%1", "OK", "None."),
    "NodeReach": Text("%1", "Warning", "If the node does not answer, look after it, and after the "
                      "way to it."),
    "Stranger": Text("%1", "Warning", "Give its factory record to the manager, or find out who "
                     "announces it."),
    "RequestChanged": Text("%1", "OK", "None."),
    "TaskChanged": Text("%1", "OK", "None."),
    "AccountChanged": Text("%1", "OK", "None."),
    "SubscriptionChanged": Text("%1", "OK", "None."),
    "ServiceChanged": Text("%1", "OK", "None."),
    "Test": Text("%1", "OK", "None."),
}

#: Severity and resolution of the messages of Base that are used.
_BASE = {
    "Success": ("OK", "None."),
    "NoOperation": ("Warning", "Give at least one property that can be written."),
    "GeneralError": ("Critical", "See the text."),
    "MalformedJSON": ("Critical", "Send a JSON object."),
    "UnrecognizedRequestBody": ("Critical", "Send a JSON object."),
    "PropertyUnknown": ("Warning", "Leave the property out."),
    "PropertyNotWritable": ("Warning", "Leave the property out."),
    "PropertyMissing": ("Warning", "Give the property."),
    "PropertyValueTypeError": ("Warning", "Give a value of the right type."),
    "PropertyValueNotInList": ("Warning", "Give one of the allowed values."),
    "PropertyValueError": ("Warning", "Give an allowed value."),
    "PropertyDuplicate": ("Warning", "Give the property once."),
    "ActionParameterMissing": ("Critical", "Give the parameter."),
    "ActionParameterUnknown": ("Warning", "Leave the parameter out."),
    "ResourceMissingAtURI": ("Critical", "Give another address."),
    "OperationNotAllowed": ("Critical", "Use a method of the header Allow."),
    "InsufficientPrivilege": ("Critical", "Log in as a user with the privilege."),
    "NoValidSession": ("Critical", "Log in."),
    "ResourceAtUriUnauthorized": ("Critical", "Log in with the right name and password."),
    "PreconditionFailed": ("Critical", "Read the resource again, and decide anew."),
    "QueryNotSupported": ("Warning", "Leave the query parameter out."),
    "QueryNotSupportedOnResource": ("Warning", "Leave the query parameter out."),
    "QueryParameterValueFormatError": ("Warning", "Give a value of the right form."),
    "QueryParameterOutOfRange": ("Warning", "Give a value within the range."),
    "InternalError": ("Critical", "Look into the manager's log."),
    "HeaderInvalid": ("Critical", "Give the header an allowed value."),
}


class Refusal(Exception):
    """An answer that is an error.

    Parameters
    ----------
    status : int
        Of HTTP.
    messages : list of messages
        The first one is the most important one.
    headers : dict
    """

    def __init__(self, status: int, messages: list[dict[str, Any]],
                 headers: dict[str, str] | None = None) -> None:
        super().__init__(messages[0]["Message"])
        self.status, self.messages, self.headers = status, messages, headers or {}


def message(key: str, said: str, *arguments: str, related: tuple[str, ...] = ()) -> dict[str, Any]:
    """A message as an answer, a task or an event has it."""
    registry, _, name = key.rpartition(".")
    if registry == OWN:
        severity, resolution = REGISTRY[name].severity, REGISTRY[name].resolution
        arguments = arguments or (said,)
    else:
        severity, resolution = _BASE[name]
    made: dict[str, Any] = {"@odata.type": "#Message.v1_2_0.Message", "MessageId": key,
                            "Message": said, "MessageArgs": list(arguments),
                            "MessageSeverity": severity,
                            "Resolution": resolution}
    if related:
        made["RelatedProperties"] = [f"#/{name.replace('.', '/')}" for name in related]
    return made


def extended(*messages: dict[str, Any]) -> dict[str, Any]:
    """The content of an answer that is messages alone."""
    first = messages[0]
    return {"error": {"code": first["MessageId"], "message": first["Message"],
                      "@Message.ExtendedInfo": list(messages)}}


def refusal(status: int, key: str, said: str, *arguments: str, related: tuple[str, ...] = (),
            headers: dict[str, str] | None = None) -> Refusal:
    """A refusal with a message of the registry Base."""
    return Refusal(status, [message(f"{BASE}.{key}", said, *arguments, related=related)], headers)


#: Status and message of errors of the pool.
_OF_POOL: tuple[tuple[type[PoolError], int, str], ...] = (
    (NotFound, 404, "NotFound"), (Conflict, 409, "Conflict"), (Impossible, 400, "Impossible"),
    (StoreError, 503, "StoreTrouble"), (Deposed, 503, "Deposed"), (PoolError, 500, "Conflict"))


def of_pool(error: PoolError) -> Refusal:
    """What a user is told of an error of the pool."""
    status, key = next((status, key) for kind, status, key in _OF_POOL if isinstance(error, kind))
    headers = {"Retry-After": "1"} if status == 503 else {}
    return Refusal(status, [message(f"{OWN}.{key}", str(error))], headers)
