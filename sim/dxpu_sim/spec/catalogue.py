"""Which models are searched, at which size, and what must come out."""

from collections.abc import Callable
from typing import NamedTuple

from . import session
from .search import Model

__all__ = ["MODELS", "SIZES", "Case", "cases"]

#: Sizes of a search: seconds for all cases, or minutes.
SIZES = ("quick", "full")

#: Name of a model and what it is about.
MODELS = {
    "session": "three-way open, fresh tags, resets and old frames",
}


class Case(NamedTuple):
    """One search."""

    model: str  #: of :data:`MODELS`
    name: str
    breaks: str | None  #: None if it must hold, else part of what the search must say is wrong
    make: Callable[[], Model]


def cases(size: str = "quick") -> list[Case]:
    """All searches: of each model what was chosen first, then what must be found broken."""
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}, not {size!r}")
    full = size == "full"
    return [*_session(full)]


def _session(full):
    def case(name, breaks=None, **options):
        return Case("session", name, breaks, lambda: session.Sessions(**options))

    more = dict(resets=(2, 2), gave_up=(1, 1), offers=3) if full else {}
    yield case("2 TLPs to the box", tlps=(2, 0), **more)
    yield case("2 TLPs to the host", tlps=(0, 2), **more)
    yield case("1 TLP each way", tlps=(1, 1), **{**more, "offers": 3})
    for scheme, breaks in {
        "no tag": "of an old session",
        "silent resync": "of an old session",
        "resumed": "came out twice",
        "new space at fail-over": "came out twice",
        "1-bit epoch": "of an old session",
        "tag per boot": "of an old session",
        "one tag for two candidates": "of an old session",
        "two-way open": "torn down",
        "no report": "nobody was told",
    }.items():
        yield case(scheme, breaks, scheme=scheme)
