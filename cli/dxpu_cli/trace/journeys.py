"""Ways of TLPs through a capture: what was seen of one TLP, and of its completions."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dxpu.tlp.types import TlpClass
from dxpu_model.text import tlp_name, tlp_text

from .sights import Sight

__all__ = ["Journey", "journeys"]


@dataclass
class Journey:
    """A request or message, and the completions of a request."""

    sights: list[Sight] = field(default_factory=list)

    @property
    def first(self) -> Sight:
        """Where the TLP was seen first."""
        return self.sights[0]

    @property
    def text(self) -> str:
        """The TLP in one line."""
        return tlp_text(self.first.raw)

    def is_at(self, sight: Sight) -> bool:
        """Whether the TLP itself was seen at the place and in the direction of ``sight`` before."""
        return any(seen.place == sight.place and seen.way == sight.way
                   and (seen.info.cls is TlpClass.CPL) == (sight.info.cls is TlpClass.CPL)
                   for seen in self.sights)


def _key(sight: Sight) -> tuple[object, ...]:
    """What stays the same of a request on its way: a switch makes type 0 of type 1."""
    info = sight.info
    name = tlp_name(info.fmt, info.type)
    if name.startswith("Cfg"):
        return name[:-1], info.requester_id, info.tag, info.target_id, info.register
    if info.cls is TlpClass.NP:
        return name, info.requester_id, info.tag, info.address
    header = 4 * (info.prefix_dwords + info.header_dwords)
    return (name, info.requester_id, info.address, info.message_code, info.length,
            sight.raw[header:])


def journeys(seen: Iterable[Sight]) -> list[Journey]:
    """All journeys, in the order of their first sights.

    A request goes on until the same requester uses the tag anew at the same place. Of posted TLPs
    that are alike the oldest that was not at a place before has come there. A frame that was sent
    again is one more sight of the same TLPs.
    """
    found: list[Journey] = []
    #: Journeys that may go on, by what stays the same; those that wait for completions.
    going: dict[tuple[object, ...], list[Journey]] = {}
    asked: dict[tuple[int, int], list[Journey]] = {}
    for sight in seen:
        info = sight.info
        if info.cls is TlpClass.CPL:
            waiting = asked.get((info.requester_id, info.tag), [])
            if waiting:
                waiting[-1].sights.append(sight)
            continue
        alike = going.setdefault(_key(sight), [])
        journey = next((old for old in alike if sight.again or not old.is_at(sight)), None)
        if journey is None:
            journey = Journey()
            found.append(journey)
            if info.cls is TlpClass.NP:
                alike.clear()
                asked[info.requester_id, info.tag] = [journey]
            alike.append(journey)
        journey.sights.append(sight)
        # What was seen at the end of its way goes no farther.
        if info.cls is TlpClass.P and sight.way == "out" and alike:
            alike.remove(journey)
    return found
