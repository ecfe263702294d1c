"""Query parameters: what of a resource is wanted, and in which detail.

Ref: DSP0266, 7.3 "Query parameters"
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .messages import refusal

__all__ = ["FEATURES", "MAX_LEVELS", "Query", "apply", "parse"]

#: Levels to which links are expanded, at most.
MAX_LEVELS = 3
#: What the root of the service says of all this.
FEATURES: dict[str, Any] = {
    "ExcerptQuery": False, "FilterQuery": False, "OnlyMemberQuery": True, "SelectQuery": True,
    "TopSkipQuery": True, "IncludeOriginOfConditionQuery": False, "MultipleHTTPRequests": True,
    "ExpandQuery": {"ExpandAll": True, "Levels": True, "Links": True, "NoLinks": True,
                    "MaxLevels": MAX_LEVELS},
    "DeepOperations": {"DeepPATCH": False, "DeepPOST": False},
}

Read = Callable[[str], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Query:
    """What is wanted of a resource."""

    select: tuple[tuple[str, ...], ...] = ()
    expand: str = ""
    levels: int = 1
    only: bool = False
    top: int | None = None
    skip: int = 0


def parse(given: Mapping[str, str]) -> Query:
    """The wish in query parameters; raises :exc:`Refusal`."""
    select: tuple[tuple[str, ...], ...] = ()
    expand, levels, only, top, skip = "", 1, False, None, 0
    for name, text in given.items():
        if name == "$select":
            names = [part.strip() for part in text.split(",")]
            if not all(re.fullmatch(r"[\w@.#]+(/[\w@.#]+)*", part) for part in names):
                raise _malformed(name, text)
            select = tuple(tuple(part.split("/")) for part in names)
        elif name == "$expand":
            match = re.fullmatch(r"([.*~])(?:\(\$levels=(\d{1,9})\))?", text)
            if match is None:
                raise _malformed(name, text)
            expand, levels = match[1], int(match[2] or 1)
            if not 1 <= levels <= MAX_LEVELS:
                raise refusal(400, "QueryParameterOutOfRange",
                              f"$levels is 1 to {MAX_LEVELS}, not {levels}", str(levels),
                              "$levels", f"1-{MAX_LEVELS}")
        elif name in ("$top", "$skip"):
            if not re.fullmatch(r"\d{1,9}", text):
                raise _malformed(name, text)
            if name == "$top":
                top = int(text)
            else:
                skip = int(text)
        elif name == "only":
            if text:
                raise _malformed(name, text)
            only = True
        elif name.startswith("$") or name == "excerpt":
            raise refusal(501, "QueryNotSupported", f"the query parameter {name} is not supported",
                          name)
        # Others are ignored (DSP0266, 7.3.1).
    return Query(select, expand, levels, only, top, skip)


def _malformed(name: str, text: str) -> Exception:
    return refusal(400, "QueryParameterValueFormatError",
                   f"the value {text!r} of {name} cannot be read", text, name)


async def apply(query: Query, body: dict[str, Any], read: Read) -> dict[str, Any]:
    """What a query wants of a resource; ``read`` gives others."""
    members = body.get("Members")
    is_collection = isinstance(members, list)
    if (query.only or query.top is not None or query.skip) and not is_collection:
        name = "only" if query.only else "$top" if query.top is not None else "$skip"
        raise refusal(400, "QueryNotSupportedOnResource",
                      f"the query parameter {name} is for collections", name)
    if query.only and len(body["Members"]) == 1:
        body = await read(body["Members"][0]["@odata.id"])
    elif is_collection and (query.top is not None or query.skip):
        end = None if query.top is None else query.skip + query.top
        body = {**body, "Members": body["Members"][query.skip:end]}
        if end is not None and end < body["Members@odata.count"] and query.top:
            body["Members@odata.nextLink"] = f"{body['@odata.id']}?$skip={end}&$top={query.top}"
    if query.expand:
        body = await _expanded(body, query.expand, query.levels, read)
    return _selected(body, query.select) if query.select else body


async def _expanded(body: dict[str, Any], which: str, levels: int, read: Read) -> dict[str, Any]:
    """The resource with linked ones in place of links: those below it, in ``Links``, or all."""
    own = body.get("@odata.id", "")

    async def walk(value: Any, within_links: bool) -> Any:
        if isinstance(value, list):
            return [await walk(one, within_links) for one in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {"@odata.id"}:
            wanted = which == "*" or (which == "~") == within_links
            target = value["@odata.id"]
            if not wanted or target == own or "#" in target:
                return value
            inner = await read(target)
            return inner if levels == 1 else await _expanded(inner, which, levels - 1, read)
        return {name: await walk(one, within_links or name == "Links")
                for name, one in value.items()}

    walked = await walk({**body, "@odata.id": own} if set(body) != {"@odata.id"} else body, False)
    assert isinstance(walked, dict)
    return walked


def _selected(body: dict[str, Any], select: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    made = {name: value for name, value in body.items()
            if name in ("@odata.id", "@odata.type", "@odata.context", "@odata.etag")}
    if "Members" in body:
        for name in ("Name", "Members@odata.count", "Members@odata.nextLink"):
            if name in body:
                made[name] = body[name]
        made["Members"] = [
            _selected(one, select) if set(one) != {"@odata.id"} else one
            for one in body["Members"]]
        return made
    by: dict[str, list[tuple[str, ...]]] = {}
    for path in select:
        by.setdefault(path[0], []).append(path[1:])
    for name, rests in by.items():
        if name not in body:
            continue
        value = body[name]
        if all(rests) and isinstance(value, dict):
            made[name] = _selected(value, tuple(rests))
        else:
            made[name] = value
    return made
