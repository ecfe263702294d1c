"""Choice of GPUs for a wish, among free GPUs; no node is asked.

Ref: DxPU paper, 3.2 (kinds of boxes), 5.2 (GPUs grouped in advance)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Inventory", "Kind", "Paths", "Place", "SATURATES", "Where", "Wish", "lacks", "place"]

#: GPUs that a path to a box carries (paper, table 12: more of them saturate a proxy).
SATURATES = 4


class Kind(StrEnum):
    """Kinds of boxes (paper, 3.2)."""

    #: Its GPUs reach each other without the host, as on an NVLink board.
    JOINED = "joined"
    #: Its GPUs are behind a PCIe switch, each for itself.
    SWITCH = "switch"


class Where(StrEnum):
    """Where the GPUs of a wish may be."""

    #: Together if that can be, in as few boxes as can be if not.
    ANY = "any"
    #: In one box.
    BOX = "box"
    #: In one box that joins them.
    JOINED = "joined"
    #: Each in another box.
    APART = "apart"


@dataclass(frozen=True)
class Wish:
    """A wish for GPUs.

    Parameters
    ----------
    host : int
        Serial number of the host that gets the GPUs.
    count : int
    model : str
        Empty: any.
    where : Where
    path : int or None
        The path to the GPUs; ``None``: any.
    """

    host: int
    count: int = 1
    model: str = ""
    where: Where = Where.ANY
    path: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a wish is for 1 GPU or more, not {self.count}")
        if self.path is not None and not 0 <= self.path <= 15:
            raise ValueError(f"a path is 0 to 15, not {self.path}")

    def __str__(self) -> str:
        what = f"{self.count} GPU{'s' * (self.count > 1)}" + f" of model {self.model}" * bool(
            self.model)
        return what + {Where.ANY: "", Where.BOX: " in one box", Where.JOINED: " in one joined box",
                       Where.APART: ", each in another box"}[self.where] + (
                           "" if self.path is None else f" by path {self.path}")


@dataclass(frozen=True)
class Place:
    """A slot with a GPU."""

    gpu: str
    box: int
    model: str = ""


@dataclass(frozen=True)
class Paths:
    """Paths of the fabric.

    Parameters
    ----------
    of : mapping
        Number of paths of hosts and boxes, by serial number; of others it is 1.
    taken : mapping
        Path that a host takes to a box, by both serial numbers, if it has GPUs there: all frames of
        the two are in one order.
    dead : mapping
        Paths without a link of hosts and boxes, by serial number: bit n is path n.
    """

    of: Mapping[int, int] = field(default_factory=dict)
    taken: Mapping[tuple[int, int], int] = field(default_factory=dict)
    dead: Mapping[int, int] = field(default_factory=dict)

    def between(self, host: int, box: int) -> list[int]:
        """Paths with a link that a host can take to a box."""
        held, dead = self.taken.get((host, box)), self.dead.get(host, 0) | self.dead.get(box, 0)
        ways = range(min(self.of.get(host, 1), self.of.get(box, 1))) if held is None else (held,)
        return [path for path in ways if not dead >> path & 1]


@dataclass
class _Box:
    kind: Kind
    size: int = 0
    free: dict[str, list[str]] = field(default_factory=dict)

    def of(self, model: str) -> list[str]:
        """Free GPUs of a model, or of any."""
        if model:
            return self.free.get(model, [])
        return sorted(gpu for gpus in self.free.values() for gpu in gpus)

    @property
    def left(self) -> int:
        return sum(map(len, self.free.values()))


class Inventory:
    """What is free, by box and model.

    Parameters
    ----------
    kinds : mapping
        Kind of each box, by serial number.
    places : iterable of Place
        All GPUs to be given away, free or not.
    ports : mapping
        Number of ports without a GPU, by serial number of the host.
    paths : Paths
    """

    def __init__(self, kinds: Mapping[int, Kind], places: Iterable[Place],
                 ports: Mapping[int, int], paths: Paths = Paths()) -> None:
        self.paths = paths
        self._boxes = {serial: _Box(kind) for serial, kind in sorted(kinds.items())}
        self.places = {place.gpu: place for place in places}
        self.ports = dict(ports)
        for name in sorted(self.places):
            where = self.places[name]
            self._boxes[where.box].size += 1
            self._boxes[where.box].free.setdefault(where.model, []).append(name)

    def copy(self) -> "Inventory":
        """The same, to be changed for itself."""
        other = Inventory.__new__(Inventory)
        other.places, other.ports, other.paths = self.places, dict(self.ports), self.paths
        other._boxes = {serial: _Box(box.kind, box.size,
                                     {model: list(gpus) for model, gpus in box.free.items()})
                        for serial, box in self._boxes.items()}
        return other

    def take(self, host: int, gpus: Iterable[str]) -> None:
        """A host gets GPUs."""
        for gpu in gpus:
            where = self.places[gpu]
            self._boxes[where.box].free[where.model].remove(gpu)
            self.ports[host] -= 1

    def give(self, host: int, gpus: Iterable[str]) -> None:
        """A host gives GPUs back."""
        for gpu in gpus:
            where = self.places[gpu]
            self._boxes[where.box].free[where.model].append(gpu)
            self._boxes[where.box].free[where.model].sort()
            self.ports[host] += 1

    def boxes(self, model: str) -> list[tuple[int, Kind, list[str], int, int]]:
        """Serial number, kind, free GPUs of the model, number of free GPUs, size of each box."""
        return [(serial, box.kind, box.of(model), box.left, box.size)
                for serial, box in self._boxes.items()]


def place(wish: Wish, free: Inventory) -> tuple[str, ...] | None:
    """GPUs for a wish; ``None`` if there are none at present.

    Several go into a joined box, one into a box behind a switch, if there is room. Among boxes of a
    kind the box with the fewest free GPUs is taken, so the others stay whole; of those with as many
    the one whose paths carry the fewest GPUs too many. For one GPU, which needs no whole box, paths
    count before.
    """
    if free.ports.get(wish.host, 0) < wish.count:
        return None
    several = wish.count > 1
    boxes = [box for box in free.boxes(wish.model) if box[2] and _leads(wish, free, box[0])]
    paths = free.paths.of

    def excess(box: tuple[int, Kind, list[str], int, int], count: int) -> int:
        """GPUs too many on the paths of a box that gives so many more."""
        return max(0, box[4] - box[3] + count - SATURATES * paths.get(box[0], 1))

    likes = {Kind.JOINED: not several, Kind.SWITCH: several}
    if wish.where is Where.APART:
        # From those with the most, so that boxes stay alike.
        apart = sorted(boxes, key=lambda box: (
            likes[box[1]], excess(box, 1), -box[3], box[0]))
        return tuple(box[2][0] for box in apart[:wish.count]) if len(apart) >= wish.count else None
    enough = [box for box in boxes if len(box[2]) >= wish.count
              and (wish.where is not Where.JOINED or box[1] is Kind.JOINED)]
    if enough:
        # A joined box that nobody uses is broken up last.
        best = min(enough, key=lambda box: (
            likes[box[1]], not several and box[3] == box[4] and box[1] is Kind.JOINED,
            0 if several else excess(box, 1), box[3], excess(box, wish.count), box[0]))
        return tuple(best[2][:wish.count])
    if wish.where is not Where.ANY:
        return None
    found: list[str] = []
    for _, _, gpus, _, _ in sorted(boxes, key=lambda box: (-len(box[2]), likes[box[1]], box[0])):
        found += gpus[:wish.count - len(found)]
    return tuple(found) if len(found) == wish.count else None


def _leads(wish: Wish, free: Inventory, box: int) -> bool:
    """Whether the path of a wish, or any if it has none, leads to a box and can be taken there."""
    if wish.path is None:
        return not free.paths.dead or bool(free.paths.between(wish.host, box))
    return wish.path in free.paths.between(wish.host, box)


def lacks(wish: Wish, free: Inventory) -> str:
    """Why a wish has no place at present; empty if it has one."""
    if place(wish, free) is not None:
        return ""
    ports = free.ports.get(wish.host)
    if ports is None:
        return f"there is no host {wish.host:08x}"
    if ports < wish.count:
        return f"host {wish.host:08x} has {_many(ports, 'free port')}"
    boxes = [box for box in free.boxes(wish.model) if _leads(wish, free, box[0])]
    of_model = f" of model {wish.model}" * bool(wish.model)
    if wish.path is not None:
        of_model += f" by path {wish.path}"
    if wish.where is Where.APART:
        found = sum(1 for box in boxes if box[2])
        return f"there are free GPUs{of_model} in {_many(found, 'box', 'boxes')}"
    if wish.where is Where.ANY:
        found = sum(len(box[2]) for box in boxes)
        return f"there {'is' if found == 1 else 'are'} {_many(found, 'free GPU')}{of_model}"
    kinds = [len(box[2]) for box in boxes if wish.where is Where.BOX or box[1] is Kind.JOINED]
    what = "joined box" if wish.where is Where.JOINED else "box"
    return f"no {what} has more than {_many(max(kinds, default=0), 'free GPU')}{of_model}"


def _many(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
