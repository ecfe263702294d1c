"""Permanent checks at the PCIe ends of a design: every TLP comes out, once, in order.

A line in a bench, ``checker = watch({"host": mailbox, ...})``, and ``checker.finish()`` at its end
check:

- a byte-exact log: every TLP that entered leaves at the right port; no TLP is lost, doubled,
  changed (except Type 1 to Type 0 configuration where the route demands) or invented;
- order: nothing passes a posted request, and the completions of one request keep their order (PCIe
  Base 5.0, 2.4.1; relaxed ordering is not used);
- completions: each belongs to an open request with the same requester and tag, carries the expected
  bytes, and at the end no request is open.

All checks are plain Python on bytes, written from the PCIe specification, and share no code with
the models that generate traffic or with the hardware.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

__all__ = ["CPL", "NP", "P", "CheckFailed", "Crossing", "Header", "TlpChecker", "type0", "watch"]

log = logging.getLogger("dxpu.checkers")

P, NP, CPL = 0, 1, 2
CLASS_NAMES = ("posted", "non-posted", "completion")


class CheckFailed(AssertionError):
    """The design broke a rule; the message gives rule and place."""


@dataclass(frozen=True)
class Header:
    """Fields of a TLP that the checks use (PCIe Base 5.0, 2.2.1 to 2.2.9)."""

    raw: bytes
    cls: int
    fmt: int
    type: int
    #: Dwords of the Length field, 0 read as 1024.
    length: int
    requester_id: int
    tag: int
    #: Target ID of configuration requests and messages by ID; completer ID of completions.
    other_id: int
    address: int
    first_be: int
    last_be: int
    status: int
    byte_count: int
    lower_address: int

    @classmethod
    def parse(cls, raw: bytes) -> "Header":
        """The header of ``raw``, behind its prefixes."""
        h = raw
        while h and h[0] >> 5 == 4:
            h = h[4:]
        if len(h) < 12:
            raise CheckFailed(f"a TLP of {len(raw)} bytes: {raw.hex()}")
        fmt, kind = h[0] >> 5, h[0] & 0x1f
        completion = kind in (0x0a, 0x0b)
        if completion:
            traffic = CPL
        elif kind & 0x18 == 0x10 or (kind == 0 and fmt & 2):
            traffic = P
        else:
            traffic = NP
        ids = [int.from_bytes(h[n:n + 2], "big") for n in (4, 8)]
        return cls(
            raw, traffic, fmt, kind,
            length=(int.from_bytes(h[2:4], "big") & 0x3ff) or 1024,
            requester_id=ids[completion],
            tag=(h[1] >> 7) << 9 | (h[1] >> 3 & 1) << 8 | h[10 if completion else 6],
            other_id=ids[not completion],
            address=int.from_bytes(h[8:16] if fmt & 1 else h[8:12], "big") & ~3,
            first_be=h[7] & 15, last_be=h[7] >> 4,
            status=h[6] >> 5,
            byte_count=(int.from_bytes(h[6:8], "big") & 0xfff) or 4096,
            lower_address=h[11] & 0x7f,
        )

    @property
    def is_config(self) -> bool:
        """Whether this is a configuration request."""
        return self.type in (0x04, 0x05)

    @property
    def is_memory(self) -> bool:
        """Whether this is a memory request, including locked and atomic requests."""
        return self.type in (0x00, 0x01, 0x0c, 0x0d, 0x0e)

    @property
    def is_memory_read(self) -> bool:
        """Whether this is a memory read, including locked reads."""
        return self.type in (0x00, 0x01) and not self.fmt & 2

    @property
    def is_message(self) -> bool:
        """Whether this is a message."""
        return self.type & 0x18 == 0x10

    @property
    def register(self) -> int:
        """Byte address of the register in a configuration request."""
        return self.address & 0xffc

    @property
    def read_bytes(self) -> tuple[int, int]:
        """Number of bytes requested by a memory read, and the address of the first."""
        if self.length == 1 and not self.first_be:
            return 1, self.address
        first = next((n for n in range(4) if self.first_be >> n & 1), 0)
        enables = self.last_be if self.length > 1 else self.first_be
        last = next((n for n in reversed(range(4)) if enables >> n & 1), 3)
        return (self.length - 1) * 4 + last + 1 - first, self.address + first

    def __str__(self):
        who = f"{self.requester_id >> 8:02x}:{self.requester_id >> 3 & 31:02x}." \
              f"{self.requester_id & 7} tag {self.tag:#x}"
        if self.cls == CPL:
            what = f"for {who}, status {self.status}, byte count {self.byte_count}"
        elif self.is_config:
            what = f"type {self.type & 1} config of {self.other_id:#06x} register " \
                   f"{self.register:#x} by {who}"
        else:
            what = f"fmt {self.fmt} type {self.type:#04x} at {self.address:#x} by {who}"
        return f"{CLASS_NAMES[self.cls]} {what}, {len(self.raw)} bytes"


def type0(raw: bytes) -> bytes:
    """Type 1 configuration request ``raw`` as the Type 0 request that leaves on its target bus."""
    return bytes([raw[0] & ~1]) + raw[1:]


@dataclass
class Crossing:
    """A TLP that entered at ``source`` and left at ``destination``, with the cycles of its
    beats."""

    source: Hashable
    destination: Hashable
    header: Header
    first_in: int
    last_in: int
    first_out: int = -1
    last_out: int = -1
    #: A fault may have hit the TLP: it may be lost.
    at_risk: bool = False
    #: Number of repairs so far of the links at both ends.
    life: int = 0


@dataclass
class _Open:
    """A request without its last completion."""

    request: Header
    left: int
    position: int
    at_risk: bool = False


class _Lane:
    """TLPs on their way from one port to another, in the order of entry."""

    def __init__(self):
        self._next = 0
        self._pending: dict[int, Crossing] = {}
        self._by_bytes: dict[bytes, deque[int]] = {}
        #: Newest life of which a TLP has arrived.
        self.life = 0

    def put(self, expected: bytes, crossing: Crossing) -> None:
        self._pending[self._next] = crossing
        self._by_bytes.setdefault(expected, deque()).append(self._next)
        self._next += 1

    def take(self, raw: bytes) -> tuple[Crossing, list[Crossing]] | None:
        """The oldest TLP that should leave as ``raw``, and all TLPs that it passes."""
        numbers = self._by_bytes.get(raw)
        if not numbers:
            return None
        # Of equal TLPs from before and after a fault, assume the later TLP.
        number = next((n for n in numbers if not self._pending[n].at_risk), numbers[0])
        numbers.remove(number)
        if not numbers:
            del self._by_bytes[raw]
        crossing = self._pending.pop(number)
        passed = []
        for other, older in self._pending.items():
            if other > number:
                break
            passed.append(older)
        return crossing, passed

    def give_up(self) -> list[bytes]:
        """Forget the TLPs at risk, and return them as they should have left."""
        lost = []
        for raw, numbers in list(self._by_bytes.items()):
            for number in [n for n in numbers if self._pending[n].at_risk]:
                numbers.remove(number)
                del self._pending[number]
                lost.append(raw)
            if not numbers:
                del self._by_bytes[raw]
        return lost

    def pending(self) -> Iterable[Crossing]:
        return self._pending.values()


def _other_port(ports):
    """Route of a design with two ports that only forwards."""
    a, b = ports

    def route(source, header):
        return [(b if source == a else a, header.raw)]

    return route


@dataclass
class TlpChecker:
    """Checker of the TLPs at the ports of a design; the module lists the rules.

    Parameters
    ----------
    ports : iterable
        Names of the design's ports.
    route : callable
        ``route(source, header)`` returns pairs ``(port, bytes)``: where, and with which bytes, the
        TLP must leave. No pair: the design consumes the TLP. Optional for designs with two ports.
    originates : callable
        ``originates(port, header)``: whether the design itself may be the author of a TLP that
        leaves at ``port``. Default never.
    exact : bool
        Compare byte count and lower address of the design's own completions with the request, also
        for errors.
    fatal : bool
        Raise at the first violation, and not only in :meth:`finish`.
    Attributes
    ----------
    violations : list of str
    crossings : list of :class:`Crossing`
        Every TLP that came through, in the order of leaving.
    originated : Counter
        TLPs made by the design, by (port, class).
    consumed : Counter
        TLPs taken by the design, by (port, class).
    """

    ports: Iterable[Hashable]
    route: Callable[[Hashable, Header], Iterable[tuple[Hashable, bytes]]] | None = None
    originates: Callable[[Hashable, Header], bool] = lambda port, header: False
    exact: bool = True
    fatal: bool = False
    violations: list[str] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)
    originated: Counter = field(default_factory=Counter)
    consumed: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self.ports = tuple(self.ports)
        if self.route is None:
            if len(self.ports) != 2:
                raise ValueError(f"route must be given for ports {self.ports!r}")
            self.route = _other_port(self.ports)
        self._lanes: dict[tuple[Hashable, Hashable], _Lane] = {}
        self._open: dict[tuple[Hashable, int, int], _Open] = {}
        self._recent: deque[tuple[Hashable, bytes]] = deque(maxlen=4096)
        self._faulty: set[Hashable] = set()
        self._reborn: set[Hashable] = set()
        self._given_up: deque[tuple[Hashable, bytes]] = deque(maxlen=4096)
        self._lives: Counter = Counter()

    def fault(self, port: Hashable) -> None:
        """``port`` loses its link. Until :meth:`mended`, TLPs to or from ``port`` may get lost, and
        its requests may stay without completion. Requests to ``port`` still need a completion.
        """
        self._faulty.add(port)
        self._reborn.discard(port)
        for ends, lane in self._lanes.items():
            if port in ends:
                for crossing in lane.pending():
                    crossing.at_risk = True
        for (owner, *_), entry in self._open.items():
            if owner == port:
                entry.at_risk = True

    def mended(self, port: Hashable) -> None:
        """``port`` has a link again: TLPs that enter from now on do not get lost. TLPs from before
        must not arrive behind them.
        """
        self._faulty.discard(port)
        if port not in self._reborn:
            self._lives[port] += 1

    def reborn(self, port: Hashable) -> None:
        """``port`` was reset after a :meth:`fault`, and its link comes up now.

        From now on no older TLP to ``port`` may arrive, and no older request of ``port`` may be
        answered. New TLPs may still get lost until :meth:`mended`.
        """
        self._reborn.add(port)
        self._lives[port] += 1
        for (_, destination), lane in self._lanes.items():
            if destination == port:
                self._given_up.extend((port, raw) for raw in lane.give_up())
        for key in [key for key, entry in self._open.items() if key[0] == port and entry.at_risk]:
            del self._open[key]

    def _violation(self, text):
        self.violations.append(text)
        log.error("%s", text)
        if self.fatal:
            raise CheckFailed(text)

    def entered(self, port: Hashable, raw: bytes, first: int = -1, last: int = -1) -> None:
        """A TLP entered the design at ``port``, with the cycles of its first and last beat."""
        header = Header.parse(raw)
        if header.cls == NP:
            key = (port, header.requester_id, header.tag)
            if key in self._open and not self._open[key].at_risk:
                self._violation(f"{port}: tag used again while open: {header}")
            left, position = header.read_bytes if header.is_memory_read else (4, 0)
            self._open[key] = _Open(header, left, position, port in self._faulty)
        targets = list(self.route(port, header))
        for destination, expected in targets:
            lane = self._lanes.setdefault((port, destination), _Lane())
            lane.put(expected, Crossing(port, destination, header, first, last,
                                        at_risk=bool(self._faulty & {port, destination}),
                                        life=self._lives[port] + self._lives[destination]))
        if not targets:
            self.consumed[port, header.cls] += 1

    def left(self, port: Hashable, raw: bytes, first: int = -1, last: int = -1,
             cls: int | None = None) -> None:
        """A TLP left the design at ``port``, on the stream of class ``cls`` if known."""
        header = Header.parse(raw)
        if cls is not None and cls != header.cls:
            self._violation(f"{port}: left on the stream of class {CLASS_NAMES[cls]}: {header}")
        crossing = None
        for (_source, destination), lane in self._lanes.items():
            if destination == port and (found := lane.take(raw)):
                crossing, passed = found
                self._check_order(crossing, passed)
                if crossing.life < lane.life:
                    self._violation(f"{port}: from an earlier life: {header}")
                lane.life = crossing.life
                crossing.first_out, crossing.last_out = first, last
                self.crossings.append(crossing)
                self._recent.append((port, raw))
                break
        else:
            if self.originates(port, header):
                self.originated[port, header.cls] += 1
            else:
                self._violation(f"{port}: {self._explain(port, header)}")
        if header.cls == CPL:
            self._check_completion(port, header, exact=self.exact and crossing is None)

    def _explain(self, port, header):
        if (port, header.raw) in self._recent:
            return f"left twice: {header}"
        if (port, header.raw) in self._given_up:
            return f"from an earlier life: {header}"
        for (source, destination), lane in self._lanes.items():
            for older in lane.pending():
                same = (older.header.cls, older.header.requester_id, older.header.tag,
                        older.header.address) == (header.cls, header.requester_id, header.tag,
                                                  header.address)
                if same and older.header.raw == header.raw:
                    return f"entered at {source} for {destination}, left here: {header}"
                if same:
                    return (f"changed: {header} came in at {source} as "
                            f"{older.header.raw.hex()} and left as {header.raw.hex()}")
        return f"never entered: {header}, {header.raw.hex()}"

    def _check_order(self, crossing, passed):
        mine = crossing.header
        for older in passed:
            if older.at_risk:
                continue
            other = older.header
            if other.cls == P:
                self._violation(f"{crossing.destination}: {mine} passed {other}")
            elif mine.cls == other.cls == CPL and (mine.requester_id, mine.tag) == (
                    other.requester_id, other.tag):
                self._violation(f"{crossing.destination}: completions of one request changed "
                                f"places: {mine} before {other}")

    def _check_completion(self, port, cpl, exact):
        """Account for a completion; ``exact`` for completions of the design with all fields
        checked."""
        key = (port, cpl.requester_id, cpl.tag)
        entry = self._open.get(key)
        if entry is None:
            self._violation(f"{port}: unexpected completion: {cpl}")
            return
        request = entry.request
        if exact and (cpl.byte_count != entry.left or cpl.lower_address != (
                entry.position & 0x7f if request.is_memory_read else 0)):
            self._violation(f"{port}: byte count and lower address should be {entry.left} and "
                            f"{entry.position & 0x7f:#x}: {cpl}")
        if cpl.status or not request.is_memory_read:
            del self._open[key]
            return
        if (cpl.byte_count, cpl.lower_address) != (entry.left, entry.position & 0x7f):
            self._violation(f"{port}: {entry.left} bytes from {entry.position & 0x7f:#x} are due "
                            f"of {request}: {cpl}, lower address {cpl.lower_address:#x}")
            del self._open[key]
            return
        carried = cpl.length * 4 - (cpl.lower_address & 3) if cpl.fmt & 2 else 0
        if not carried:
            self._violation(f"{port}: successful completion of a read without data: {cpl}")
        if carried >= entry.left or not carried:
            del self._open[key]
        else:
            entry.left -= carried
            entry.position += carried

    def outstanding(self) -> list[str]:
        """TLPs still on their way, and requests without answer."""
        return [f"{source} to {destination}: lost: {c.header}"
                for (source, destination), lane in self._lanes.items() for c in lane.pending()
                if not c.at_risk
                ] + [f"{port}: no completion: {entry.request}"
                     for (port, *_), entry in self._open.items() if not entry.at_risk]

    def forget(self) -> list[str]:
        """Forget all TLPs that are :meth:`outstanding`, and return them; for benches that cause
        losses."""
        lost = self.outstanding()
        self._lanes.clear()
        self._open.clear()
        return lost

    def finish(self) -> None:
        """Check that every TLP has arrived and every request is answered.

        Raises
        ------
        CheckFailed
            With all violations of the run.
        """
        problems = self.violations + self.outstanding()
        if problems:
            more = f"\n... and {len(problems) - 20} more" if len(problems) > 20 else ""
            raise CheckFailed(f"{len(problems)} violations:\n" + "\n".join(problems[:20]) + more)


def watch(mailboxes: dict, **options) -> TlpChecker:
    """Check the traffic of ``mailboxes``: port names and their mailboxes.

    ``options`` go to :class:`TlpChecker`; the first violation ends the test.
    """
    checker = TlpChecker(mailboxes, **{"fatal": True, **options})

    def listen(port, mailbox):
        mailbox.sent.append(lambda r: checker.entered(port, r.raw, r.first_cycle, r.last_cycle))
        mailbox.received.append(lambda r: checker.left(port, r.raw, r.first_cycle, r.last_cycle,
                                                       None if r.cls < 0 else r.cls))

    for port, mailbox in mailboxes.items():
        listen(port, mailbox)
    return checker
