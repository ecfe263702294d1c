"""Names of a running manager, for the completion of commands."""

import argparse
import threading
from collections.abc import Callable, Iterator

from .client import Client

__all__ = ["FITS", "completer"]

#: Seconds that a manager has to answer; who types does not wait longer.
SECONDS = 0.5
#: States of the GPUs that a command can be about; of other commands all can be.
FITS: dict[tuple[str, ...], frozenset[str]] = {
    ("gpu", "admit"): frozenset({"quarantined"}),
    ("gpu", "set-aside"): frozenset({"free", "spare", "reserved", "failed"}),
    ("gpu", "spare"): frozenset({"free"}),
    ("gpu", "unspare"): frozenset({"spare"}),
    ("gpu", "retire"): frozenset({"quarantined", "failed"}),
    ("attach",): frozenset({"free", "spare", "reserved"}),
    ("detach",): frozenset({"attached"}),
    ("swap",): frozenset({"attached"}),
}
#: States of a task that goes on, and phases of requests that a command can be about.
_GOES_ON = frozenset({"Running", "Stopping"})
_PHASES: dict[tuple[str, ...], frozenset[str]] = {
    ("request", "renew"): frozenset({"starting", "reserved", "holding"}),
    ("request", "take-up"): frozenset({"reserved"}),
    ("request", "end"): frozenset({"waiting", "reserved", "holding"}),
}

Finder = Callable[[Client, tuple[str, ...], argparse.Namespace], Iterator[str]]


def _gpus(there: Client, words: tuple[str, ...], given: argparse.Namespace) -> Iterator[str]:
    fits, named = FITS.get(words), getattr(given, "gpus", None) or ()
    host = getattr(given, "host", None) if words == ("detach",) else None
    if host is not None:
        host = next((one["Id"] for one in there.members("Systems")
                     if host in (one["Id"], one["Oem"]["DxPU"]["Label"])), host)
    for one in there.members("CompositionService/ResourceBlocks"):
        own = one["Oem"]["DxPU"]
        if ((fits is None or own["State"] in fits) and host in (None, own["Host"])
                and one["Id"] not in named):
            yield one["Id"]


def _nodes(*kinds: str) -> Finder:
    def find(there: Client, words: tuple[str, ...], given: argparse.Namespace) -> Iterator[str]:
        for kind in kinds:
            for one in there.members(kind):
                yield one["Oem"]["DxPU"]["Label"] or one["Id"]
                yield one["Id"]

    return find


def _tasks(there: Client, words: tuple[str, ...], given: argparse.Namespace) -> Iterator[str]:
    for one in there.members("TaskService/Tasks"):
        if words == ("task", "show") or one["TaskState"] in _GOES_ON:
            yield one["Id"]


def _requests(there: Client, words: tuple[str, ...], given: argparse.Namespace) -> Iterator[str]:
    from .views import REQUESTS_AT

    for one in there.members(REQUESTS_AT):
        if one["Phase"] in _PHASES.get(words, {one["Phase"]}):
            yield one["Id"]


#: What arguments are called, and how their values are found.
_FINDERS: dict[str, Finder] = {
    "GPU": _gpus, "HOST": _nodes("Systems"), "BOX": _nodes("Chassis"),
    "NODE": _nodes("Chassis", "Systems"), "TASK": _tasks, "REQUEST": _requests}
#: States to list GPUs by.
_STATES = ("absent", "quarantined", "free", "spare", "reserved", "attaching", "attached",
           "draining", "failed")


def completer(action: argparse.Action, words: tuple[str, ...]) -> Callable[..., list[str]] | None:
    """The completer of an argument of the command ``words``, or ``None``.

    The completer asks the manager of the line, and offers nothing without an answer in time.
    """
    called = str(action.metavar or action.dest).upper()
    if called == "STATE":
        return lambda **given: list(_STATES)
    find = _FINDERS.get(called)
    if find is None:
        return None

    def known(parsed_args: argparse.Namespace, **given: object) -> list[str]:
        found: list[list[str]] = []

        def ask() -> None:
            # Who types wants no message in the middle of the line.
            try:
                with Client(parsed_args.manager) as there:
                    found.append(list(dict.fromkeys(find(there, words, parsed_args))))
            except Exception:
                return

        import httpx  # before the time begins, and missing without the extra
        assert httpx
        asks = threading.Thread(target=ask, daemon=True)
        asks.start()
        asks.join(SECONDS)
        return found[0] if found else []

    return known
