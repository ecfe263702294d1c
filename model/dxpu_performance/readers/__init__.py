"""Readers of workloads, a module each format; :func:`read` recognises the format by content."""

from .recognise import read

__all__ = ["read"]
