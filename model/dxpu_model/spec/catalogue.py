"""Catalogue of searches: model, size, expected outcome."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .arq import Arq
from .bindings import Bindings
from .credits import Credits, RelativeCredits
from .keyed import Keyed
from .management import Management
from .order import Egress
from .queues import Queues
from .quiet import Quiet
from .search import Model
from .session import Sessions

__all__ = ["MODELS", "SIZES", "Case", "cases"]

#: Sizes of a search: half a minute for all cases, or some minutes.
SIZES = ("quick", "full")

#: Names of the models, with their subjects.
MODELS = {
    "session": "three-way open, fresh tags, resets and old frames",
    "keyed": "two nonces and two proofs under a key, before strangers who send anything",
    "management": "associations of managers with a node, requests and events, before strangers",
    "quiet": "how long a node keeps still after a reset, if its tags begin anew",
    "arq": "go-back-N and selective repeat: window, modulus, frame lifetime",
    "credits": "limits that get lost, doubled and late",
    "queues": "deadlock: pools, transmit space and bypass",
    "order": "nothing passes P; P and C pass a refused N",
    "bindings": "BIND and UNBIND in the stream, generations, lives of a slot",
}


class Case(NamedTuple):
    """One search with its expected outcome."""

    model: str  #: key of :data:`MODELS`
    name: str
    breaks: str | None  #: None if the model must hold, else part of the fault to be found
    make: Callable[[], Model]


def cases(size: str = "quick") -> list[Case]:
    """All searches: for each model first the chosen design, then the flawed designs."""
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}, not {size!r}")
    full = size == "full"
    return [Case(model, name, breaks, make)
            for model, some in (("session", _session(full)), ("keyed", _keyed(full)),
                                ("management", _management(full)),
                                ("quiet", _quiet(full)), ("arq", _arq(full)),
                                ("credits", _credits(full)), ("queues", _queues(full)),
                                ("order", _order(full)), ("bindings", _bindings(full)))
            for name, breaks, make in some]


def _session(full):
    if full:
        twice = partial(Sessions, gave_up=(1, 1))
        yield "2 TLPs to the box, 4 tags", None, partial(twice, tlps=(2, 0), offers=4)
        yield "2 TLPs to the host, 4 tags", None, partial(twice, tlps=(0, 2), offers=4)
        yield "1 TLP each way, 2 resets of each end", None, partial(
            twice, tlps=(1, 1), offers=3, resets=(2, 2))
        yield "3 TLPs to the box, 5 tags", None, partial(Sessions, tlps=(3, 0), offers=5)
    else:
        yield "2 TLPs to the box", None, partial(Sessions, tlps=(2, 0), offers=3)
        yield "2 TLPs to the host", None, partial(Sessions, tlps=(0, 2), offers=3)
        yield "1 TLP each way", None, partial(Sessions, tlps=(1, 1), offers=3)
    for scheme, breaks in {
        "no tag": "of an old session",
        "no tag in ACK": "never came out",
        "silent resync": "of an old session",
        "resumed": "came out twice",
        "new space at fail-over": "came out twice",
        "1-bit epoch": "torn down",
        "tag per boot": "acted in a session with frames of",
        "one tag for two candidates": "of an old session",
        "two-way open": "torn down",
        "no report": "nobody was told",
    }.items():
        yield scheme, breaks, partial(Sessions, scheme)


def _keyed(full):
    both = {"resets": (1, 1)}
    blind = partial(Keyed, stranger="blind", **both)
    sniffer = partial(Keyed, stranger="sniffer")
    renewed = partial(Keyed, renewed=True, gave_up=2, offers=3)
    if full:
        yield "no stranger, 2 TLPs to the box, 2 resets of the host", None, partial(
            Keyed, tlps=(2, 0), resets=(2, 1), offers=4)
        yield "blind stranger, 1 TLP each way", None, partial(
            blind, tlps=(1, 1), gave_up=2, offers=3)
        yield "sniffer, two sessions given up", None, partial(sniffer, **both, gave_up=2)
        yield "sniffer, 3 candidates", None, partial(sniffer, resets=(0, 1), gave_up=0, offers=3)
        yield "sniffer, two streams", None, partial(sniffer, streams=2)
        yield "sniffer who foretells nonces, a reset of each end", None, partial(
            sniffer, **both, foretold=True)
        yield "sniffer, the key is renewed", None, partial(sniffer, renewed=True, gave_up=2)
        yield "the key is renewed, the host is reset", None, partial(
            renewed, tlps=(1, 0), resets=(1, 0))
    else:
        yield "no stranger, 2 TLPs to the box", None, partial(Keyed, tlps=(2, 0), **both, offers=3)
        yield "no stranger, 1 TLP to the host", None, partial(Keyed, tlps=(0, 1), **both, offers=3)
        yield "blind stranger", None, partial(blind, tlps=(1, 0))
        yield "sniffer", None, partial(sniffer, **both)
        yield "sniffer, two streams", None, partial(sniffer, streams=2, gave_up=0)
        yield "sniffer who foretells nonces", None, partial(sniffer, resets=(0, 1), foretold=True)
        yield "the key is renewed", None, renewed
    for flaw, breaks, model in (
        ("counter nonce", "for the second time", partial(sniffer, **both)),
        ("proof over one nonce", "did not offer", sniffer),
        ("stream not bound", "did not offer", partial(sniffer, streams=2)),
        ("parameters not bound", "did not offer", sniffer),
        ("tags not bound", "did not offer", sniffer),
        ("one proof for both", "did not accept", sniffer),
        ("any frame with the tag opens", "did not accept", blind),
        ("data before the confirmation", "are lost in a session", partial(Keyed, tlps=(1, 0))),
        ("mode taken from the frame", "did not accept", blind),
        ("a pause as lock-out", "is refused", blind),
        ("no knock", "a HELLO of a stranger", blind),
        ("numbers from 0", "did not begin", blind),
        ("a FENCE has no number", "a FENCE with the tag", blind),
        ("candidate kept", "for the second time", Keyed),
        ("candidate kept for ever", "no way back", Keyed),
        ("another answer taken", "torn down at the host", Keyed),
        ("one key at a time", "no way back", renewed),
        ("new key tried alone", "no way back", renewed),
    ):
        yield flaw, breaks, partial(model, flaw)


def _management(full):
    sniffer = partial(Management, stranger="sniffer")
    two, same = partial(Management, numbers=(0, 1)), partial(Management, numbers=(0, 0))
    numbered = partial(Management, events=1, renumber=True)
    events = partial(Management, events=2, resets=0)
    if full:
        yield "sniffer, 2 restarts of the manager", None, partial(sniffer, restarts=2)
        yield "sniffer, 3 requests", None, partial(sniffer, operations=3)
        yield "two managers, sniffer", None, partial(two, stranger="sniffer", restarts=0, resets=0)
        yield "3 requests, 2 resets of the node", None, partial(
            Management, resets=2, restarts=1, operations=3)
        yield "2 events, a reset of the node", None, partial(events, resets=1)
        yield "two managers, 2 events", None, partial(events, numbers=(0, 1))
    else:
        yield "one manager", None, Management
        yield "blind stranger", None, partial(Management, stranger="blind")
        yield "sniffer", None, sniffer
        yield "two managers", None, two
        yield "two managers with one number", None, partial(same, resets=0)
        yield "2 events", None, events
        yield "the node gets a number", None, numbered
    for flaw, breaks, model in (
        ("one nonce for all", "one key and nonce", two),
        ("no nonce of the manager", "one key and nonce", Management),
        ("no nonce of the node", "acts twice", Management),
        ("nonce kept after use", "after a newer one", Management),
        ("counted nonces", "one key and nonce", Management),
        ("answer made anew", "two ANSWERs have one key", two),
        ("a counter used again", "two REQUESTs have one key", Management),
        ("ASK ends the association", "ends without its manager", Management),
        ("an association stays", "no way back", Management),
        ("epoch not checked", "was deposed", two),
        ("events from the present number", "two EVENTs have one key", numbered),
        ("events without a number", "an event twice", events),
        ("found by its number alone", "cannot be had", numbered),
        ("no knock", "costs a calculation", partial(Management, stranger="blind")),
    ):
        yield flaw, breaks, partial(model, flaw)


def _quiet(full):
    life, wait = (12, 5) if full else (4, 3)
    model = partial(Quiet, lifetime=life, give_up=wait)
    old = "from before the reset"
    yield "2 lifetimes and the time to give up", None, partial(model, quiet=2 * life + wait)
    yield "no quiet time, fresh tags", None, partial(model, quiet=0, fresh=True)
    yield "2 lifetimes, tags begin anew", old, partial(model, quiet=2 * life)
    yield "no quiet time, tags begin anew", old, partial(model, quiet=0)
    yield "idle hosts wait", old, partial(model, quiet=2 * life + wait, flaw="idle hosts wait")


def _arq(full):
    for selective, name in ((False, "go-back-N"), (True, "selective repeat")):
        model = partial(Arq, selective=selective)
        window, life = (4, 6) if not full else (5, 8) if selective else (12, 16)
        least = life + window if selective else life + 1
        size = f"window {window}, lifetime {life}"
        yield f"{name}, {size}", None, partial(model, window=window, life=life, modulus=least)
        breaks = "stored in place of" if selective else "freed, and was never committed"
        yield (f"{name}, modulus {least - 1}", breaks,
               partial(model, window=window, life=life, modulus=least - 1))
    small = partial(Arq, selective=True, window=2, life=2, modulus=4)
    for flaw, breaks in {
        "ACK before commit": "never committed",
        "ACK read as the last one taken": "never committed",
        "replay memory below the window": "in place of",
        "stored frame given up": "no way",
    }.items():
        yield flaw, breaks, partial(small, flaw=flaw)


def _credits(full):
    room, life = (3, 4) if full else (3, 3)
    model = partial(Credits, room=room, life=life, modulus=2 * max(room, life) + 1)
    yield "absolute", None, model
    yield "absolute, limits of any age", None, partial(model, aged=False)
    yield "absolute, some withheld", None, partial(
        model, room=2, modulus=2 * max(2, life) + 1, withheld=(0, 1))
    yield "absolute, most withheld", None, partial(model, withheld=(room - 1,))
    yield "all withheld", "never gets all", partial(model, withheld=(room,))
    yield "relative, good network", None, partial(RelativeCredits, room=room, harm="none")
    yield "relative, loss", "never gets all", partial(RelativeCredits, room=room, harm="loss")
    yield "relative, doubles", "no room", partial(RelativeCredits, room=room, harm="double")
    yield "never refreshed", "never gets all", partial(model, flaw="never refreshed")
    yield "unsigned", "no room", partial(model, flaw="unsigned")
    yield "counter too small", "no room", partial(Credits, room=2, life=2, modulus=4)


def _queues(full):
    room = {"P": 1, "N": 2, "C": 2} if full else None
    yield "own pools, own space, bypass", None, partial(Queues, transmit_room=room)
    small = {"P": 1, "N": 1, "C": 1}
    yield "one receive pool", "deadlock", partial(Queues, pools=False, transmit_room=small)
    yield "one transmit space", "deadlock", partial(Queues, spaces=False, transmit_room=small)
    yield "no bypass", "deadlock", partial(Queues, bypass=False)


def _order(full):
    yield "numbered classes", None, partial(Egress, room=4 if full else 3)
    for flaw, breaks in {
        "one queue": "only a refused N",
        "no order": "N passes an older P",
        "C passes P": "C passes an older P",
        "stamp that wraps": "N waits",
    }.items():
        yield flaw, breaks, partial(Egress, room=2, flaw=flaw)


def _bindings(full):
    if full:
        yield "lives A, B, A", None, partial(Bindings, owners="ABA", room=3)
        yield "lives A, A, B", None, partial(Bindings, owners="AAB", room=4)
    yield "lives A, A", None, partial(Bindings, owners="AA")
    yield "lives A, B", None, partial(Bindings, owners="AB")
    for flaw, owners, breaks in (
        ("no generation", "AA", "taken in"),
        ("1-bit generation", "AAA", "taken in"),
        ("BIND not in the stream", "AA", "taken in"),
        ("no BIND", "AA", "taken in"),
        ("source not checked", "AB", "taken in"),
        ("queue not flushed", "AA", "at the GPU"),
        ("limit without generation", "AA", "a limit of life"),
    ):
        yield flaw, breaks, partial(Bindings, owners=owners, flaw=flaw)
