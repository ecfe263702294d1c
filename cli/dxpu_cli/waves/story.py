"""A capture in words: rows of texts for a wave, and events."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from dxpu.fabric.wire.format import ETHERTYPE, EventCode
from dxpu.fabric.wire.frame_types import FrameType, Numbering
from dxpu_cli.trace.packets import Packet, packets
from dxpu_model.text import frame_text, tlp_text
from dxpu_model.wire import Event as EventBody, Frame, FrameError, parse
from dxpu_sim.ethernet.pcap import ETHERNET, INTERRUPT, TLP
from dxpu_sim.waves.texts import Texts

__all__ = ["KINDS", "Event", "Story", "tell"]

#: Kinds of events, the rarer first.
KINDS = {
    "session": "a session begins or ends",
    "bind": "a slot is bound, and its life begins",
    "unbind": "a binding ends",
    "reset": "a slot is reset, and its next life begins",
    "up": "the link of a slot is up",
    "down": "the link of a slot is down, or its card is gone",
    "fault": "a frame is dropped on its way",
    "resend": "a frame is sent again",
    "interrupt": "an interrupt reaches a host",
}
#: How long a text stays if nothing follows: as wide as its words in a view of some microseconds.
HOLD_NS = 4000
#: Sequence numbers count modulo that.
_NUMBERS = 1 << 24


@dataclass(frozen=True)
class Event:
    """An event of a run."""

    time_ns: int
    #: One of :data:`KINDS`.
    kind: str
    text: str


@dataclass
class Story:
    """All rows and events of a capture, in the order of time."""

    #: Rows by group: PCIe, frames, sessions, slots, lives.
    rows: dict[str, list[Texts]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


class _Row:
    """A row under construction."""

    def __init__(self, label: str, hold: int = 0):
        self.texts = Texts(re.sub(r"\W+", "_", label), label)
        self._hold = hold
        self._until: int | None = None

    def say(self, time: int, text: str) -> None:
        """From ``time`` on the row says ``text``."""
        self.end(time)
        if not self.texts.changes or self.texts.changes[-1][1] != text or self._hold:
            self.texts.changes.append((time, text))
        if self._hold:
            self._until = time + self._hold

    def end(self, time: int | None = None) -> None:
        """A text whose time is over by ``time`` ends."""
        if self._until is not None and (time is None or self._until < time):
            self.texts.changes.append((self._until, ""))
            self._until = None


@dataclass
class _Way:
    """A direction of a session, as seen by the sender."""

    tag: int
    #: Number of the next new frame, and of the oldest one not acknowledged.
    next: int
    acked: int
    #: Frames that were sent before are sent again, up to this number.
    again: int | None = None


def _behind(number: int, than: int) -> bool:
    """Whether a number is before another number, modulo 2^24."""
    return 0 < (than - number) % _NUMBERS < _NUMBERS // 2


def _dropped(packet: Packet) -> bool:
    """Whether a frame goes no farther, by the comment of the capture."""
    return "dropped" in packet.comment


class _Teller:
    def __init__(self, names: Mapping[int, str]):
        self._names = names
        self._rows: dict[str, dict[tuple[object, ...], _Row]] = {
            group: {} for group in ("PCIe", "Frames", "Sessions", "Slots", "Lives")}
        self._ways: dict[tuple[int, int, int], _Way] = {}
        #: PCIe ports, in the order of the capture; frames with events that have come.
        self._places: dict[str, None] = {}
        self._came: set[tuple[int, ...]] = set()
        self.events: list[Event] = []

    def _row(self, group: str, key: tuple[object, ...], label: str, hold: int = 0) -> _Row:
        return self._rows[group].setdefault(key, _Row(label, hold))

    def _name(self, node: int) -> str:
        return self._names.get(node, f"node {node:03x}")

    def _happens(self, time: int, kind: str, text: str) -> None:
        self.events.append(Event(time, kind, text))

    def _order(self, key: tuple[object, ...]) -> tuple[object, ...]:
        if key[0] in self._places:
            return list(self._places).index(str(key[0])), *key[1:]
        return key

    def finish(self) -> Story:
        """The whole story."""
        rows: dict[str, list[Texts]] = {}
        for group, found in self._rows.items():
            for row in found.values():
                row.end()
            if found:
                rows[group] = [found[key].texts for key in sorted(found, key=self._order)]
        self.events.sort(key=lambda event: event.time_ns)
        told = _Row("events", HOLD_NS)
        for time, together in groupby(self.events, key=lambda event: event.time_ns):
            told.say(time, "; ".join(f"{event.kind}: {event.text}" for event in together))
        told.end()
        return Story({"Events": [told.texts], **rows}, self.events)

    def tlp(self, packet: Packet) -> None:
        """A TLP at a PCIe port."""
        self._places.setdefault(packet.place)
        label = f"{packet.place} {packet.way}".rstrip()
        tlp = tlp_text(packet.data)
        text = tlp + f" ({packet.comment})" * bool(packet.comment)
        self._row("PCIe", (packet.place, packet.way), label, HOLD_NS).say(packet.time_ns, text)
        if packet.comment == INTERRUPT:
            self._happens(packet.time_ns, "interrupt", f"{packet.place}: {tlp}")

    def frame(self, packet: Packet) -> None:
        """A frame at an Ethernet port."""
        row = self._row("Frames", (packet.place,), packet.place, HOLD_NS)
        for with_fcs in (True, False):
            try:
                frame = parse(packet.data, with_fcs=with_fcs)
                break
            except FrameError as error:
                cause = error
        else:
            row.say(packet.time_ns, f"damaged ({cause})")
            self._happens(packet.time_ns, "fault", f"{packet.place}: damaged ({cause})")
            return
        text = frame_text(frame)
        if isinstance(frame.body, EventBody):
            text += f": {_event_text(frame.body)}"
        again = self._count(packet, frame)
        text = f"{text} again" if again else text
        if _dropped(packet):
            self._happens(packet.time_ns, "fault", f"{packet.place}: {text}: {packet.comment}")
            text += f" ({packet.comment})"
        elif isinstance(frame.body, EventBody):
            number = (frame.src_node, frame.dst_node, frame.stream, frame.tag, frame.seq)
            if number not in self._came:
                self._came.add(number)
                self._event(packet.time_ns, frame, frame.body)
        if again:
            self._happens(packet.time_ns, "resend", f"{packet.place}: {text}")
        row.say(packet.time_ns, text)

    def _count(self, packet: Packet, frame: Frame) -> bool:
        """Keep the state of the session; returns whether the frame was there before."""
        here, there = frame.src_node, frame.dst_node
        if frame.type is FrameType.MGMT:
            return False
        row = self._row("Sessions", (min(here, there), max(here, there), frame.stream),
                        f"{self._name(min(here, there))} - {self._name(max(here, there))}"
                        f" stream {frame.stream}")
        between = f"{self._name(here)} to {self._name(there)}"
        if frame.type in (FrameType.HELLO, FrameType.HELLO_ACK, FrameType.HELLO_DONE):
            row.say(packet.time_ns, f"opens: {frame.type.name}")
            return False
        if frame.type is FrameType.FENCE:
            row.say(packet.time_ns, "ended")
            self._happens(packet.time_ns, "session", f"{between}: ended")
            return False
        way = self._ways.get((here, there, frame.stream))
        if way is None or way.tag != frame.tag:
            way = self._ways[here, there, frame.stream] = _Way(frame.tag, frame.seq, frame.seq)
            self._happens(packet.time_ns, "session", f"{between}: open, tag {frame.tag:04x}h")
        again = False
        if frame.type.numbering is Numbering.CONSUMES:
            again = _behind(frame.seq, way.next)
            if again:
                way.again = way.next
            else:
                way.next = (frame.seq + 1) % _NUMBERS
        back = self._ways.get((there, here, frame.stream))
        # The other end does not hear of what gets lost.
        if back is not None and not _dropped(packet) and _behind(back.acked, frame.ack):
            back.acked = frame.ack
            if back.again is not None and not _behind(frame.ack, back.again):
                back.again = None
        row.say(packet.time_ns, self._session(here, there, frame.stream))
        return again

    def _session(self, here: int, there: int, stream: int) -> str:
        low, high = min(here, there), max(here, there)
        said, again = [], []
        for pair in ((low, high), (high, low)):
            way = self._ways.get((*pair, stream))
            said.append((way.next - way.acked) % _NUMBERS if way else 0)
            again += [self._name(pair[0])] * (way is not None and way.again is not None)
        text = "open"
        if any(said):
            text += f", {said[0]} + {said[1]} not acknowledged"
        return text + "".join(f", {name} sends again" for name in again)

    def _event(self, time: int, frame: Frame, body: EventBody) -> None:
        """An event of a slot of a box, which has come."""
        to_box = body.code in (EventCode.BIND, EventCode.UNBIND, EventCode.RESET)
        node, slot = ((frame.dst_node, frame.dst_slot) if to_box
                      else (frame.src_node, frame.src_slot))
        host = self._name(frame.src_node if to_box else frame.dst_node)
        place = f"{self._name(node)} slot {slot}"
        state = self._row("Slots", (node, slot), place)
        life = self._row("Lives", (node, slot), f"{place} life")
        match body.code:
            case EventCode.BIND | EventCode.RESET:
                kind = "bind" if body.code == EventCode.BIND else "reset"
                state.say(time, "in reset")
                life.say(time, f"life {body.argument} of {host}, generation {body.generation}")
                self._happens(time, kind, f"{place}: life {body.argument} of {host}")
            case EventCode.UNBIND:
                state.say(time, "free")
                life.say(time, "")
                self._happens(time, "unbind", f"{place}: from {host}")
            case EventCode.RESET_DONE:
                state.say(time, "up")
                self._happens(time, "up", f"{place}: life {body.argument} of {host}")
            case EventCode.LINK_DOWN:
                state.say(time, "link down")
                self._happens(time, "down", f"{place}: link down")
            case EventCode.PRESENCE:
                if not body.argument & 1:
                    state.say(time, "empty")
                    self._happens(time, "down", f"{place}: no card")
            case _:
                pass


def _event_text(body: EventBody) -> str:
    try:
        name = EventCode(body.code).name
    except ValueError:
        return f"code {body.code}"
    return f"{name} life {body.argument}" if name in ("BIND", "RESET", "RESET_DONE") else name


def tell(capture: Path, names: Mapping[int, str] | None = None) -> Story:
    """The story of a capture.

    Parameters
    ----------
    capture : Path
    names : dict
        Names of nodes, by their numbers.
    """
    teller = _Teller(names or {})
    for packet in packets(capture):
        if packet.link == TLP:
            teller.tlp(packet)
        elif packet.link == ETHERNET and packet.data[12:14] == ETHERTYPE.to_bytes(2, "big"):
            teller.frame(packet)
    return teller.finish()
