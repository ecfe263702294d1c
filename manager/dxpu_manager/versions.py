"""Versions of a store, and the steps from each to the next one.

A step changes the tables of a file, and records, which every store has as text. Old events have
records too, so that all events in order give all records: these are changed alike.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["STEPS", "Step", "VERSION", "brought"]

Values = dict[str, Any]


def _as_ever(kind: str, values: Values) -> Values:
    return values


@dataclass(frozen=True)
class Step:
    """A step from the version before.

    Parameters
    ----------
    tables : tuple of str
        Statements of SQL for a file.
    record : function
        Fields of a record from then on, of its kind and of its fields before.
    """

    tables: tuple[str, ...] = ()
    record: Callable[[str, Values], Values] = _as_ever


def _with_evidence(kind: str, values: Values) -> Values:
    """Evidence that a host has a GPU; of older ones there is none."""
    if kind == "node":
        return {"agent": False, **values}
    if kind == "task":
        return {"seen": [], **values}
    if kind == "gpu" and values["binding"] is not None:
        return {**values, "binding": {"learnt": 0.0, "word": 0.0, "seen": [], **values["binding"]}}
    return values


def _with_paths(kind: str, values: Values) -> Values:
    """Paths of the fabric: nothing but path 0 was taken before."""
    if kind == "node":
        return {"paths": 1, **values}
    if kind == "request":
        return {**values, "wish": {"path": None, **values["wish"]}}
    return values


def _with_links(kind: str, values: Values) -> Values:
    """Paths without a link: the first look at a node finds them."""
    return {"dead": 0, **values} if kind == "node" else values


def _with_serials(kind: str, values: Values) -> Values:
    """Serial numbers of GPUs, which agents have not said yet."""
    return {"serial": "", **values} if kind == "gpu" else values


#: Number n leads from version n to version n + 1; nothing is version 0.
STEPS: tuple[Step, ...] = (
    Step(tables=(
        "CREATE TABLE record (key TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE event (number INTEGER PRIMARY KEY, time REAL NOT NULL, key TEXT NOT NULL, "
        "text TEXT, said TEXT NOT NULL)",
        "CREATE TABLE manager (epoch INTEGER NOT NULL)",
        "INSERT INTO manager VALUES (0)")),
    # An event says whose wish it was.
    Step(tables=("ALTER TABLE event ADD COLUMN who TEXT NOT NULL DEFAULT ''",),
         record=_with_evidence),
    Step(record=_with_paths),
    Step(record=_with_links),
    Step(record=_with_serials),
)
#: Version that this program writes.
VERSION = len(STEPS)


def brought(key: str, text: str, version: int) -> str:
    """Text of a record, as the present version has it; raises :exc:`ValueError` for another text.
    """
    steps = [step.record for step in STEPS[version:] if step.record is not _as_ever]
    if not steps:
        return text
    values: Values = json.loads(text)
    try:
        for step in steps:
            values = step(key.partition("/")[0], values)
    except (TypeError, KeyError) as error:
        raise ValueError(f"it has not the fields of version {version} ({error})") from None
    return json.dumps(values, separators=(",", ":"), sort_keys=True)
