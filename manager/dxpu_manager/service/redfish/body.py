"""Checks of what is sent: properties that may be there, types, and values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .messages import BASE, Refusal, message, refusal

__all__ = ["Field", "check", "is_annotation"]


@dataclass(frozen=True)
class Field:
    """A property of a request's body.

    ``name`` has points between levels: ``Oem.DxPU.Closed``. ``types``: one of these. ``values``:
    one of these, if there are any.
    """

    name: str
    types: tuple[type, ...]
    values: tuple[object, ...] = ()
    required: bool = False
    least: float | None = None

    def wrong(self, value: Any) -> dict[str, Any] | None:
        """A message if a value may not be given."""
        fits = isinstance(value, self.types) and not (
            isinstance(value, bool) and bool not in self.types)
        if not fits:
            names = " or ".join(_NAMES[kind] for kind in self.types)
            return message(f"{BASE}.PropertyValueTypeError",
                           f"{self.name} must be {names}, not {_short(value)}",
                           _short(value), self.name, related=(self.name,))
        if self.values and value not in self.values:
            return message(f"{BASE}.PropertyValueNotInList",
                           f"{self.name} must be one of {', '.join(map(str, self.values))}, not "
                           f"{_short(value)}", _short(value), self.name, related=(self.name,))
        if self.least is not None and isinstance(value, (int, float)) and value < self.least:
            return message(f"{BASE}.PropertyValueError",
                           f"{self.name} must be {self.least:g} at least, not {_short(value)}",
                           self.name, related=(self.name,))
        return None


_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false",
          list: "an array", dict: "an object", type(None): "null"}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def is_annotation(name: str) -> bool:
    """Whether a name is one of OData's or Redfish's annotations, which nobody writes."""
    return "@" in name


def check(body: Mapping[str, Any], fields: Iterable[Field], *, readable: Mapping[str, Any] = {},
          action: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Values that may be written, by name, and messages about all others.

    Parameters
    ----------
    body : mapping
    fields : iterable of Field
    readable : mapping
        The resource as it is: what is there, but no field, cannot be written.
    action : bool
        Properties are parameters of an action.

    Raises
    ------
    Refusal
        If there is nothing that may be written, or if something that is required is missing.
    """
    known = {field.name: field for field in fields}
    values: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []

    def look(inner: Mapping[str, Any], prefix: str, here: Any) -> None:
        for name, value in inner.items():
            full = prefix + name
            if full in known:
                bad = known[full].wrong(value)
                if bad:
                    wrong.append(bad)
                else:
                    values[full] = value
            elif is_annotation(name):
                continue
            elif isinstance(value, dict) and any(key.startswith(f"{full}.") for key in known):
                look(value, f"{full}.", here.get(name) if isinstance(here, Mapping) else None)
            elif action:
                wrong.append(message(f"{BASE}.ActionParameterUnknown",
                                     f"there is no parameter {full}", "", full, related=(full,)))
            elif isinstance(here, Mapping) and name in here:
                wrong.append(message(f"{BASE}.PropertyNotWritable",
                                     f"{full} cannot be written", full, related=(full,)))
            else:
                wrong.append(message(f"{BASE}.PropertyUnknown", f"there is no property {full}",
                                     full, related=(full,)))

    look(body, "", readable)
    for field in known.values():
        if field.required and field.name not in values and not any(
                field.name in bad["MessageArgs"] for bad in wrong):
            key = "ActionParameterMissing" if action else "PropertyMissing"
            arguments = ("", field.name) if action else (field.name,)
            wrong.append(message(f"{BASE}.{key}", f"{field.name} is missing", *arguments,
                                 related=(field.name,)))
    missing = any(field.required and field.name not in values for field in known.values())
    if wrong and (missing or action or not values):
        raise Refusal(400, wrong)
    if not values and not action:
        raise refusal(400, "NoOperation", "nothing that can be written was given")
    return values, wrong
