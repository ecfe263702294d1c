"""A light node: registers of a host or box proxy before a golden model of management.

Ref: docs/reference/mapping.md ("Commit"), docs/howto/hot-plug.md, docs/explanation/security.md
("The memory of a GPU")
"""

import random
from dataclasses import dataclass, field
from functools import lru_cache

from dxpu.fabric.session.session import Phase
from dxpu.mapping.types import CommitCode
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.detach import DetachState
from dxpu.proxy.host import HostProxy
from dxpu_model.management import Event, Identity, ManagedNode

from .software import Software

__all__ = ["HOST", "BOX", "Agent", "Binding", "Card", "Shape"]

#: Roles, as in an identity.
HOST, BOX = 1, 2


@dataclass(frozen=True)
class Shape:
    """Sizes of a proxy."""

    rows: int = 8
    paths: int = 1
    peers: int = 16
    streams: int = 1


@lru_cache(maxsize=16)
def _map(role, shape):
    """The register map of a proxy, of the gateware's own description."""
    common = {"paths": shape.paths, "peers": shape.peers, "streams": shape.streams, "keys": True,
              "managed": True}
    if role == HOST:
        return HostProxy(64, ports=shape.rows, **common).registers
    return BoxProxy(64, slots=shape.rows, **common).registers


@lru_cache(maxsize=16)
def _placed(role, shape):
    """Path and register at each address of a map, and address and register of each path."""
    by_address = {base + p.address: (f"{name}.{p.path}", p.register)
                  for name, (base, block) in _map(role, shape).blocks.items()
                  for p in block.placed}
    return by_address, {path: (address, register)
                        for address, (path, register) in by_address.items()}


@dataclass
class Card:
    """A GPU in a slot.

    Parameters
    ----------
    wipes : bool
        A reset clears the memory.
    works : bool
        The link comes up after a reset.
    """

    wipes: bool = True
    works: bool = True
    #: Who has written the memory: node number of a host, 0 for nobody.
    wrote: int = 0


@dataclass(frozen=True)
class Binding:
    """A row of a mapping table."""

    used: bool = False
    node: int = 0
    slot: int = 0
    stream: int = 0
    paths: int = 0
    generation: int = 0
    operation: int = 0

    @property
    def target(self):
        """What a change of paths keeps."""
        return self.node, self.slot, self.stream, self.generation


@dataclass
class _Peer:
    node: int = 0
    clear: bool = False
    valid: bool = False
    key: bytes = b""
    next: bytes = b""


@dataclass
class _State:
    """All that a reset ends."""

    words: dict[int, int] = field(default_factory=dict)
    rows: list[Binding] = field(default_factory=list)
    peers: list[_Peer] = field(default_factory=list)
    shadow: dict[int, int] = field(default_factory=dict)
    result: tuple[CommitCode, int, int] = (CommitCode.NONE, 0, 0)
    dirty: int = 0
    #: Slots of a host whose card went, until the row is bound again.
    lost: int = 0
    detached: dict[int, DetachState] = field(default_factory=dict)
    table_changes: int = 0
    #: Rows whose slot had a card at the last look; told by events.
    told: dict[int, int] = field(default_factory=dict)
    #: From which path on each session looks for one that its frames may take, if not from 0.
    ways: dict[int, int] = field(default_factory=dict)


class _Node(ManagedNode):
    """A node whose number is that of its register."""

    @property
    def number(self):
        return self.registers.number

    @number.setter
    def number(self, value):
        assert value == 0xFFF


class Agent:
    """A node.

    Parameters
    ----------
    role : int
        :data:`HOST` or :data:`BOX`.
    mac : bytes
        Factory address.
    serial : int
    key : bytes
        16 bytes, for managers.
    shape : Shape
    cards : dict of :class:`Card`
        By slot, from 1; of a box.
    rng : random.Random

    Attributes
    ----------
    model : dxpu_model.management.ManagedNode
        Takes and makes frames; a new one after each reset.
    number, boot : int
    rows : list of :class:`Binding`
    consents : bool
        The host's operating system lets go of a card when the button is pressed.
    software : :class:`Software`
        Of a host.
    links : int
        Bit n: path n has a link.
    """

    def __init__(self, role, *, mac, serial, key, shape=Shape(), cards=None, rng=None):
        self.role, self.mac, self.serial, self.key, self.shape = role, mac, serial, key, shape
        self.cards = dict(cards or {})
        self.consents, self.software = True, Software()
        self.links = (1 << shape.paths) - 1
        self._rng = rng or random.Random(serial)
        self.map = _map(role, shape)
        self._placed, self._found = _placed(role, shape)
        #: Called after each change; and with the agent, number and content of a row that a command
        #: has changed.
        self.changed, self.committed = (lambda: None), (lambda agent, number, row: None)
        #: Called when the model has something to say by itself.
        self.spoken = lambda: None
        self.fabric = None
        self.reset()

    def reset(self):
        """The node restarts: numbers, keys, sessions, bindings are gone; so is what its GPUs held,
        unless they keep it."""
        state = self._state = _State()
        state.rows = [Binding() for _ in range(self.shape.rows)]
        state.peers = [_Peer() for _ in range(self.shape.peers)]
        for slot, card in self.cards.items():
            if card.wipes:
                card.wrote = 0
            else:
                state.dirty |= 1 << slot - 1
        fence = self.map.address("table.fence_epoch")
        self.model = _Node(self.key, self.mac, self, fence, lambda: self._rng.getrandbits(32))
        self._describe()
        self.changed()
        self.spoken()

    def _describe(self):
        self.model.identity = Identity(
            self.mac, serial=self.serial, role=self.role, slots=self.shape.rows,
            boot=self.boot, links=self.links, present=self.present,
            capabilities=1, table=self._state.table_changes)

    # What is so -------------------------------------------------------------------------------

    @property
    def number(self):
        return self._word("control.node", "number")

    @property
    def boot(self):
        return self._word("control.boot", "counter")

    @property
    def rows(self):
        return self._state.rows

    @property
    def is_young(self):
        """Nobody has bound a row since the last reset."""
        return not any(row.operation for row in self.rows)

    @property
    def present(self):
        """Slots of a box that hold a GPU."""
        return sum(1 << slot - 1 for slot in self.cards)

    def wipe(self, slot):
        """The GPU in a slot keeps nothing of anybody."""
        self.cards[slot].wrote = 0
        self._state.dirty &= ~(1 << slot - 1)

    @property
    def dirty(self):
        """Slots, from 1, whose GPU keeps what a host left."""
        return [slot for slot in self.cards if self._state.dirty >> slot - 1 & 1]

    @property
    def epoch(self):
        """Of the managers."""
        return self._word("table.fence_epoch", "value")

    def peer_of(self, node):
        """The valid peer with a number, and its place."""
        return next(((n, peer) for n, peer in enumerate(self._state.peers)
                     if peer.valid and peer.node == node), (None, None))

    def mode(self, peer, stream):
        """Mode of a session, as coded."""
        return self._word(f"control.session[{peer * self.shape.streams + stream}].mode", "opener")

    def is_held(self, slot, node):
        """A slot is closed to a host, as the GPU keeps what another one wrote."""
        held = self._word("control.scrub", "hold") >> slot - 1 & 1
        return bool(held and self._state.dirty >> slot - 1 & 1
                    and node != self._word("control.scrub", "maintainer"))

    def used_by(self, slot, node):
        """A host has its card: what is in the GPU's memory is the host's from now on."""
        card = self.cards[slot]
        card.wrote = node
        if not card.wipes:
            self._state.dirty |= 1 << slot - 1

    def _word(self, path, name):
        address, register = self._found[path]
        return register.unpack(self._state.words.get(address, register.reset))[name]

    # Registers, for the model of a node -------------------------------------------------------

    def has(self, address, *, write):
        """Whether there is a register, and, if ``write``, one for writing."""
        return address in self._placed and (not write or self._placed[address][1].writable)

    def read(self, address):
        """Value of a register."""
        path, register = self._placed[address]
        held = self._state.words.get(address, register.reset)
        fields = self._live(path)
        return register.pack(**{**register.unpack(held), **fields}) if fields else held

    def write(self, address, value):
        """Write a register."""
        path, register = self._placed[address]
        fields = register.unpack(value)
        if path == "table.fence_epoch" and fields["value"] < self.epoch:
            return
        if path == "table.commit":
            self._commit(fields)
        elif path.endswith(".key"):
            self._give_key(int(path[13:-5]), fields["next"])
        elif path == "control.dirty":
            for slot in self.cards:
                if (fields["slots"] & ~self._used_by_others()) >> slot - 1 & 1:
                    self.wipe(slot)
        elif path == "control.detach":
            for port in range(self.shape.rows):
                if fields["ports"] >> port & 1:
                    self._detach(port)
        elif path == "control.present":
            pass  # cards are there, or not
        else:
            self._state.words[address] = value
            if path.startswith("control.peer["):
                n = int(path[13:-6])
                if not fields["valid"] or fields["number"] != self._state.peers[n].node:
                    self._state.peers[n] = _Peer()
                peer = self._state.peers[n]
                peer.node, peer.clear, peer.valid = (
                    fields["number"], bool(fields["clear"]), bool(fields["valid"]))
        self._describe()
        self.changed()

    def _live(self, path):
        """Fields of a register that follow from the rest."""
        if path.startswith("control.peer[") and path.endswith(".key"):
            peer = self._state.peers[int(path[13:-5])]
            return {"valid": int(bool(peer.key or peer.next)), "next": int(bool(peer.next))}
        if path.startswith("control.session[") and path.endswith(".hello"):
            peer, stream = divmod(int(path[16:-7]), self.shape.streams)
            is_open = self.fabric is not None and self.fabric.is_open(self, peer, stream)
            return {"phase": int((Phase.OPEN if is_open else Phase.LISTEN).value)}
        if path.startswith("control.session[") and path.endswith(".state"):
            return {"path": self._state.ways.get(int(path[16:-7]) // self.shape.streams, 0)}
        if path.startswith("control.slot["):
            return self._slot_state(int(path[13:-7]))
        if path.startswith("table.row["):
            n, name = path[10:].split("].")
            return self._row(int(n), name)
        if path == "table.result":
            code, row, _ = self._state.result
            return {"code": int(code.value), "row": row}
        if path == "table.result_operation_id":
            return {"value": self._state.result[2]}
        if path == "control.dirty":
            return {"slots": self._state.dirty}
        if path == "control.present":
            return {"slots": self.present}
        if path == "control.links":
            return {"up": self.links}
        if path == "control.security":
            return {"random": 1}
        return {}

    def _slot_state(self, port):
        is_linked = self.fabric is not None and self.fabric.is_linked(self, port)
        detached = self._state.detached.get(port, DetachState.NONE)
        return {"present": int(is_linked), "link": int(is_linked and self.software.powered),
                "lost": self._state.lost >> port & 1, "detach": int(detached.value),
                "power": self.software.indicator(is_linked)}

    def _row(self, n, name):
        row = self.rows[n]
        if name == "state":
            fields = {"used": int(row.used), "node": row.node, "slot": row.slot,
                      "stream": row.stream}
            if self.role == BOX:
                fields |= {"slot": n + 1, "valid": int(n + 1 in self.cards)}
            return fields
        if name == "binding":
            return {"paths": row.paths, "generation": row.generation}
        if name == "operation_id":
            return {"value": row.operation}
        return self.software.windows(n, name)

    def _give_key(self, n, is_next):
        key = b"".join(self._word(f"control.key[{k}].word", "bytes").to_bytes(4, "little")
                       for k in range(4))
        peer = self._state.peers[n]
        if peer.valid:
            peer.key, peer.next = (peer.key, key) if is_next else (key, b"")

    def _used_by_others(self):
        maintainer = self._word("control.scrub", "maintainer") if self.role == BOX else 0
        return sum(1 << n for n, row in enumerate(self.rows)
                   if row.used and row.node != maintainer)

    # Paths ------------------------------------------------------------------------------------

    def link(self, path, *, up):
        """The link of a path comes or goes."""
        self.links = self.links & ~(1 << path) | up << path
        self._describe()
        self.changed()

    def way(self, row, alive):
        """The path by which the frames of a row leave and arrive, if one of ``alive`` is there.

        Frames leave by a path with a link if they may; who is not answered by the peer takes the
        next one, and stays there.
        """
        n, _ = self.peer_of(row.node)
        mine, begins = row.paths & self.links or row.paths, self._state.ways.get(n, 0)
        in_turn = [path for path in (*range(begins, self.shape.paths), *range(begins))
                   if mine >> path & 1]
        taken = next((path for path in in_turn if alive >> path & 1), None)
        if n is not None and taken not in (None, in_turn[0]):
            self._state.ways[n] = taken
        return taken

    # Hot-plug ---------------------------------------------------------------------------------

    def _detach(self, port):
        """The attention button: the operating system lets go of the card, or does nothing."""
        if self.consents:
            self._state.detached[port] = DetachState.DONE
            self._state.lost |= 1 << port
        else:
            self._state.detached[port] = DetachState.TIMED_OUT

    def plug(self, slot, card):
        """Put a card into an empty slot; it comes without power, so nothing of a tenant's is there,
        unless it keeps its memory."""
        self.cards[slot] = card
        if card.wipes:
            card.wrote = 0
        else:
            self._state.dirty |= 1 << slot - 1
        self._describe()
        self.changed()

    def lose(self, port):
        """The card behind a port has gone; nothing but another binding brings it back."""
        self._state.lost |= 1 << port

    def has_lost(self, port):
        """Whether the card behind a port has gone."""
        return bool(self._state.lost >> port & 1)

    # The mapping table ------------------------------------------------------------------------

    def _commit(self, fields):
        number = fields["row"]
        operation = self._word("table.operation_id", "value")
        code = self._judge(fields, operation)
        self._state.result = code, number, operation

    def _judge(self, fields, operation):
        """Code of a command; the first rule that applies gives it."""
        if self._word("table.epoch", "value") < self.epoch:
            return CommitCode.FENCED
        number, used, generation = fields["row"], bool(fields["used"]), fields["generation"]
        if number >= self.shape.rows:
            return CommitCode.BAD_ROW
        if not operation:
            return CommitCode.BAD_OPERATION
        old = self.rows[number]
        if (old.operation, old.generation) == (operation, generation):
            return CommitCode.DONE
        target = {name: self._word("table.target", name) for name in ("node", "slot", "stream")}
        paths = self._word("table.paths", "mask") & (1 << self.shape.paths) - 1
        if used and (not 1 <= target["node"] <= 0xFFE or not paths
                     or target["stream"] >= self.shape.streams
                     or self.role == HOST and not target["slot"]):
            return CommitCode.BAD_TARGET
        newer = generation - old.generation & 0xFFFF
        if old.operation and (newer >= 0x8000 or not newer and used and not old.used):
            return CommitCode.STALE
        if not used:
            new = Binding(False, old.node, old.slot, old.stream, old.paths, generation, operation)
        else:
            slot = target["slot"] if self.role == HOST else number + 1
            new = Binding(True, target["node"], slot, target["stream"], paths, generation,
                          operation)
            if old.used and new.target != old.target:
                return CommitCode.IN_USE
        self.rows[number] = new
        self.committed(self, number, new)
        if (new.used, new.generation) != (old.used, old.generation):
            self._state.lost &= ~(1 << number)
            self._state.detached.pop(number, None)
            self._state.table_changes = self._state.table_changes + 1 & 0xFFFFFFFF
            card = self.cards.get(number + 1)
            if card is not None and card.wipes and self.role == BOX:
                card.wrote = 0  # each binding begins with a hot reset
        return CommitCode.DONE

    def tell(self, subject, where, argument):
        """An event, unless the state was told before."""
        key = subject << 8 | where
        if self._state.told.get(key, 0) != argument:
            self._state.told[key] = argument
            self.model.happens(Event(subject, where, argument))
            self.spoken()
