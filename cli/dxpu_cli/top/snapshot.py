"""Registers of an observed node at a moment.

Ref: docs/reference/observe.md
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from dxpu.observe import BINS, EventKind
from dxpu.observe.log import DEPTH
from dxpu_model.event_log import Event, still_there

__all__ = ["Histogram", "Line", "Mark", "NodeReader", "Row", "Snapshot"]

#: Events that are read at the first look, and at each look after it, at most.
FIRST_EVENTS, MORE_EVENTS = 12, 64


class Line(Protocol):
    """Registers of a node, such as a :class:`~dxpu_boards.register_line.RegisterLine`."""

    def read(self, address: int) -> int:
        """Value of a register."""

    def read_all(self, addresses: list[int]) -> list[int]:
        """Values of registers."""


@dataclass(frozen=True)
class Histogram:
    """Times since the reset, in units: number in each bin, sum, longest."""

    bins: tuple[int, ...]
    total: int
    longest: int


@dataclass(frozen=True)
class Mark:
    """Level of a queue: now, at most since the reset, at most ever possible."""

    now: int
    most: int
    room: int


@dataclass(frozen=True)
class Row:
    """A bound row of the mapping table."""

    number: int
    node: int
    slot: int
    stream: int
    paths: int
    generation: int
    #: ``None`` of a box.
    trips: Histogram | None
    send: Histogram
    receive: Histogram
    waits: bool
    request_waits: bool


@dataclass(frozen=True)
class Snapshot:
    """Result of a look. Times are in units of 16 cycles since the reset."""

    time: int
    node: int
    links: tuple[bool, ...]
    counters: dict[str, int]
    rows: tuple[Row, ...]
    marks: dict[str, Mark]
    recorded: int
    lost: int
    frozen: bool
    #: Events that no look has had before.
    events: tuple[Event, ...] = field(default=())
    #: Events that were overwritten before they were read.
    missed: int = 0


class NodeReader:
    """Looks at a node again and again.

    Parameters
    ----------
    line : Line
    map : dxpu.csr.AddressMap
        Of an observed proxy.
    """

    def __init__(self, line: Line, map: Any) -> None:
        self._line, self._map = line, map
        shape = map.find("control.shape")[0].register
        fields = shape.unpack(shape.reset)
        self.is_host: bool = fields["role"] == 1
        self.rows: int = fields["rows"]
        self.paths: int = fields["paths"] + 1
        self.counters = [placed.path for placed in map.blocks["counters"][1].placed]
        self._read_events = 0

    def _words(self, paths: list[str]) -> dict[str, int]:
        words = self._line.read_all([self._map.address(path) for path in paths])
        return dict(zip(paths, words, strict=True))

    def _fields(self, paths: list[str]) -> dict[str, dict[str, int]]:
        return {path: self._map.find(path)[0].register.unpack(word)
                for path, word in self._words(paths).items()}

    def _time(self) -> int:
        """The time of the node, whose upper part may change between two reads."""
        high, low, again, lower = self._line.read_all([self._map.address(f"observe.{name}") for name
                                                       in ("now_high", "now_low") * 2])
        return high << 32 | low if high == again else again << 32 | lower

    def look(self, progress: Callable[[], None] = lambda: None) -> Snapshot:
        """Read all; ``progress`` is called now and then."""
        time = self._time()
        names = [f"counters.{name}" for name in self.counters]
        counters = self._words(names)
        progress()
        marks = [placed.register.name.removeprefix("mark_")
                 for placed in self._map.blocks["observe"][1].placed
                 if placed.register.name.startswith("mark_")]
        state = self._fields([
            "control.node", "control.links", "observe.log", "observe.waits",
            "observe.request_waits",
            *(f"observe.{what}_{name}" for name in marks for what in ("mark", "room")),
            *(f"table.row[{n}].{what}" for n in range(self.rows) for what in ("state", "binding"))])
        rows = []
        for n in range(self.rows):
            table, binding = (state[f"table.row[{n}].{what}"] for what in ("state", "binding"))
            if table["used"]:
                progress()
                rows.append(self._row(n, table, binding, state))
        recorded, events, missed = self._events()
        return Snapshot(
            time, state["control.node"]["number"],
            tuple(bool(state["control.links"]["up"] >> n & 1) for n in range(self.paths)),
            {name: counters[f"counters.{name}"] for name in self.counters}, tuple(rows),
            {name: Mark(state[f"observe.mark_{name}"]["now"], state[f"observe.mark_{name}"]["most"],
                        state[f"observe.room_{name}"]["most"]) for name in marks},
            recorded, state["observe.log"]["lost"], bool(state["observe.log"]["frozen"]),
            events, missed)

    def _row(self, n: int, table: dict[str, int], binding: dict[str, int],
             state: dict[str, dict[str, int]]) -> Row:
        return Row(
            n, table["node"], table["slot"], table["stream"], binding["paths"],
            binding["generation"],
            self._histogram(f"observe.round_trip[{n}]") if self.is_host else None,
            self._histogram(f"stages.send[{n}]"), self._histogram(f"stages.receive[{n}]"),
            bool(state["observe.waits"]["rows"] >> n & 1),
            bool(state["observe.request_waits"]["rows"] >> n & 1))

    def _histogram(self, row: str) -> Histogram:
        names = [*(f"bin{n}" for n in range(BINS)), "sum_low", "sum_high", "longest"]
        words = self._words([f"{row}.{name}" for name in names])
        low, high = words[f"{row}.sum_low"], words[f"{row}.sum_high"]
        again = self._words([f"{row}.sum_high"])[f"{row}.sum_high"]
        if again != high:  # the lower half has begun anew in between
            low, high = self._words([f"{row}.sum_low"])[f"{row}.sum_low"], again
        return Histogram(tuple(words[f"{row}.bin{n}"] for n in range(BINS)), high << 32 | low,
                         words[f"{row}.longest"])

    def _events(self) -> tuple[int, tuple[Event, ...], int]:
        """Number of events so far, new events, number of new events that were overwritten."""
        before = self._words(["observe.recorded"])["observe.recorded"]
        if before < self._read_events:
            self._read_events = 0  # the node was reset
        new = before - self._read_events
        most = MORE_EVENTS if self._read_events else FIRST_EVENTS
        wanted = range(before - min(new, most), before)
        paths = [f"observe.event[{n % DEPTH}].{what}" for n in wanted for what in ("time", "what")]
        words = self._words(paths)
        after = self._words(["observe.recorded"])["observe.recorded"]
        there = still_there(before, after)
        events = tuple(
            Event.of(n, *(words[f"observe.event[{n % DEPTH}].{what}"] for what in ("time", "what")))
            for n in wanted if n in there)
        missed = new - len(events) if self._read_events else 0
        self._read_events = before
        return before, events, missed

    def told(self, event: Event) -> str:
        """An event in words."""
        argument = event.argument
        row = f"row {argument}"
        match event.kind:
            case EventKind.COUNTED:
                return self.counters[argument] if argument < len(self.counters) else (
                    f"counter {argument}")
            case EventKind.WRITTEN:
                return f"written: {self._name(argument)}"
            case EventKind.BOUND:
                return f"{row} bound"
            case EventKind.RELEASED:
                return f"{row} released"
            case EventKind.CHANGED:
                return f"{row} changed"
            case EventKind.OPENED:
                return f"session {argument} opened"
            case EventKind.ENDED:
                return f"session {argument} ended"
            case EventKind.REOPENED:
                return f"session {argument} ended, and opened again"
            case EventKind.LINK_UP:
                return f"path {argument} has a link"
            case EventKind.LINK_DOWN:
                return f"path {argument} has no link"
            case EventKind.OVERDUE:
                return f"{row}: a request is overdue"
            case EventKind.FENCED:
                return f"{row} fenced"
        return f"event of kind {event.kind}, {argument}"

    def _name(self, address: int) -> str:
        """The register at an address."""
        for name, (base, block) in self._map.blocks.items():
            if base <= address < base + block.size:
                for placed in block.placed:
                    if base + placed.address == address:
                        return f"{name}.{placed.path}"
        return f"{address:#06x}"
