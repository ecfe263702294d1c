"""A manager's side of management by frames: finds nodes, reads and writes registers.

See docs/reference/manage.md.
"""

from dxpu_model.management import Event, Identity, Operation

from .errors import ManageError, NoAnswer, NoRegister, Refused, Stale
from .manager import Manager, Node

__all__ = ["Event", "Identity", "ManageError", "Manager", "NoAnswer", "NoRegister", "Node",
           "Operation", "Refused", "Stale"]
