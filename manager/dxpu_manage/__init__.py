"""A manager's side of management by frames: finds nodes, reads and writes registers, sets up
numbers, peers, keys, bindings, GPUs between two hosts.

See docs/reference/manage.md.
"""

from dxpu_model.management import Event, Identity, Operation

from .errors import ManageError, NoAnswer, NoRegister, Refused, Stale
from .generation import generation_after, is_newer
from .manager import Manager, Node
from .pool import attach, detach, pair
from .proxy import Binding, Peer, Proxy
from .registers import Registers, read_words
from .scrub import dirty_slots, let_maintain, mark_wiped
from .shape import SHAPE_WORDS, check_identity, proxy_of
from .windows import Windows, buses, windows

__all__ = ["SHAPE_WORDS", "Binding", "Event", "Identity", "ManageError", "Manager", "NoAnswer",
           "NoRegister", "Node", "Operation", "Peer", "Proxy", "Refused", "Registers", "Stale",
           "Windows", "attach", "buses", "check_identity", "detach", "dirty_slots",
           "generation_after", "is_newer", "let_maintain", "mark_wiped", "pair", "proxy_of",
           "read_words", "windows"]
