"""Rows of numbers that grow, in eight bytes a number."""

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from ..workload import WorkloadError

__all__ = ["Rows"]


class Rows:
    """A table that takes a row at a time.

    Parameters
    ----------
    columns : names
    real : numbers of 64 bits with a fraction instead of whole ones
    """

    def __init__(self, *columns: str, real: bool = False):
        self._columns = columns
        self._flat: array[Any] = array("d" if real else "q")

    def add(self, *values: float) -> None:
        """Add a row; raises :exc:`WorkloadError` if a value does not fit."""
        try:
            self._flat.extend(values)
        except (OverflowError, TypeError):
            raise WorkloadError(f"a row has a value that does not fit 64 bits: {values}") from None

    def __len__(self) -> int:
        return len(self._flat) // len(self._columns)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name; no row can be added as long as one is in use."""
        dtype = np.float64 if self._flat.typecode == "d" else np.int64
        table = np.frombuffer(self._flat, dtype).reshape(-1, len(self._columns))
        return {name: table[:, place] for place, name in enumerate(self._columns)}
