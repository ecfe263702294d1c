"""Durations as JSON: ``{"durations_us": [4.1, 9.0], "counts": [120, 7]}``; counts may be left out.

The unit is in the key: ``durations_ns``, ``durations_us``, ``durations_ms`` or ``durations_s``.
"""

import json
from pathlib import Path

import numpy as np

from ..workload import Durations, Workload, WorkloadError
from .stream import Progress, stream
from .table import UNITS

__all__ = ["KEYS", "read_durations"]

KEYS = tuple(f"durations_{unit}" for unit in ("ns", "us", "ms", "s"))
#: Longest file, in bytes: a list of ten million durations.
_LONGEST = 200 << 20


def read_durations(path: Path, progress: Progress | None = None) -> Workload:
    """The workload of a list or a histogram; raises :exc:`WorkloadError`."""
    with stream(path, progress) as source:
        text = source.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise WorkloadError(f"its durations take more than {_LONGEST >> 20} MiB: count equal ones")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"its JSON is damaged: {error}") from None
    keys = [key for key in KEYS if key in given] if type(given) is dict else []
    if len(keys) != 1:
        raise WorkloadError("one of these keys must hold the durations: " + ", ".join(KEYS))
    unknown = sorted(set(given) - {keys[0], "counts"})
    if unknown:
        raise WorkloadError(f"key {unknown[0][:40]!r} is unknown; keys are {keys[0]} and counts")
    for key in given:
        if type(given[key]) is not list or not all(
                type(value) in (int, float) for value in given[key]):
            raise WorkloadError(f"{key} must be a list of numbers")
    try:
        scaled = np.array(given[keys[0]], np.float64) * UNITS[keys[0].removeprefix("durations_")]
    except OverflowError:
        raise WorkloadError("a duration is too large") from None
    return Workload(path.name, Durations.of(scaled, given.get("counts")), source="durations")
