"""The manager as a process: accounts, events, metrics, and its interface over HTTP.

See docs/reference/manager-service.md.
"""

from .hub import Hub, Notice
from .program import run
from .settings import Settings, read_settings

__all__ = ["Hub", "Notice", "Settings", "read_settings", "run"]
