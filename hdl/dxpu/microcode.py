"""Programs of small machines, put together step by step."""

from collections.abc import Callable
from enum import Enum
from typing import Any

__all__ = ["Steps", "number"]


def number(value: Any) -> int:
    """The value of a member of an enumeration; a number as it is."""
    return value.value if isinstance(value, Enum) else value


class Steps:
    """Instructions that refer to each other by names of places, resolved at the end."""

    def __init__(self) -> None:
        self._steps: list[tuple[dict[str, Any], str | None]] = []
        self._places: dict[str, int] = {}

    def place(self, name: str) -> None:
        """The next step has this name."""
        if name in self._places:
            raise ValueError(f"there are two places {name!r}")
        self._places[name] = len(self._steps)

    def step(self, target: str | None = None, **fields: Any) -> None:
        """An instruction with these fields, that goes on at ``target``."""
        self._steps.append((fields, target))

    def resolved(self, at: Callable[[int], dict[str, int]]) -> list[dict[str, Any]]:
        """The fields of all instructions; ``at`` makes those that name a place.

        Raises
        ------
        KeyError
            For a place that is named and not there.
        """
        return [fields | at(self._places[target]) if target else fields
                for fields, target in self._steps]
