"""Checks of a user's figures; each mistake is a line of text."""

import math

__all__ = ["ModelError", "not_negative", "positive", "share", "whole"]


class ModelError(ValueError):
    """A figure makes no sense, or an input is missing; the text is a single line for the user."""


def positive(name: str, value: float) -> float:
    """``value``, a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ModelError(f"{name} must be above 0, not {value:g}")
    return value


def not_negative(name: str, value: float) -> float:
    """``value``, a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ModelError(f"{name} must be at least 0, not {value:g}")
    return value


def share(name: str, value: float) -> float:
    """``value``, a number from 0 to 1."""
    if not 0 <= value <= 1:
        raise ModelError(f"{name} must be from 0 to 1, not {value:g}")
    return value


def whole(name: str, value: int, least: int, most: int) -> int:
    """``value``, a whole number of ``least`` to ``most``."""
    if not (isinstance(value, int) and least <= value <= most):
        raise ModelError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value
