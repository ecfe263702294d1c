"""An operator's actions on a proxy through its registers: settings, and rows of its mapping table.

Ref: docs/reference/mapping.md, "Commit"
"""

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass

from dxpu.mapping import CommitCode

from .register_line import ConsoleError

__all__ = ["Proxy", "Row"]

#: Longest time in seconds for which a command is repeated while the row's last binding ends.
PATIENCE = 3.0
#: Seconds between two attempts.
PAUSE = 0.1


@dataclass(frozen=True)
class Row:
    """Content of a row of the table; an unused row keeps its last peer.

    ``slot`` is the slot of the box, from 1. ``mask`` has bit n set for path n. ``operation`` is 0
    if no operation has written the row since reset.
    """

    number: int
    used: bool
    node: int
    slot: int
    stream: int
    mask: int
    generation: int
    operation: int

    @property
    def target(self) -> tuple[int, int, int]:
        """Node, slot, stream."""
        return self.node, self.slot, self.stream

    @property
    def paths(self) -> list[int]:
        """Numbers of the permitted paths."""
        return [n for n in range(16) if self.mask >> n & 1]

    def __str__(self):
        return f"node {self.node:#05x}, slot {self.slot}, stream {self.stream}"


class Proxy:
    """A proxy at the other end of a line, with its registers by name.

    Parameters
    ----------
    line : :class:`~.register_line.RegisterLine`
        Or another object with its methods and its ``epoch``.
    map : :class:`dxpu.csr.AddressMap`

    Attributes
    ----------
    is_host : bool
    rows, paths, peers, streams : int
        Numbers of each in the proxy.
    done : list of str
        Changes so far, a line each.
    """

    def __init__(self, line, map):
        self._line, self.map, self.done = line, map, []
        register = map.find("control.shape")[0].register
        shape = register.unpack(register.reset)
        self.is_host = shape["role"] == 1
        self.rows, self.paths, self.peers = shape["rows"], shape["paths"] + 1, shape["peers"]
        self.streams = 1 << shape["streams"]

    def read(self, path: str) -> dict:
        """Fields of a register; raises :exc:`ConsoleError`."""
        placed, base = self.map.find(path)
        return placed.register.unpack(self._line.read(base + placed.address))

    def write(self, path: str, **fields) -> None:
        """Write a register: the named fields, all others 0; raises :exc:`ConsoleError`."""
        placed, base = self.map.find(path)
        self._line.write(base + placed.address, placed.register.pack(**fields))

    def change(self, path: str, **fields) -> None:
        """Set fields of a register, and record the change; other fields keep their values.

        Does nothing if the fields have these values. Raises :exc:`ConsoleError`.
        """
        held = self.read(path)
        if held == {**held, **fields}:
            return
        self.write(path, **{**held, **fields})
        self._did(f"{path} {' '.join(f'{name}={value:#x}' for name, value in fields.items())}")

    def _did(self, what):
        print(what, flush=True)
        self.done.append(what)

    @property
    def has_keys(self) -> bool:
        """Whether sessions can be opened under keys."""
        register = self.map.find("control.security")[0].register
        return register.unpack(register.reset)["keys"] == 1

    def give_key(self, peer: int, key: bytes) -> None:
        """Give a peer its key, and record that; raises :exc:`ConsoleError`.

        Sessions under way stay. It takes a millisecond at most until the key is in force.
        """
        for n in range(4):
            self.write(f"control.key[{n}].word", bytes=int.from_bytes(key[4 * n:4 * n + 4],
                                                                      "little"))
        self.write(f"control.peer[{peer}].key", next=0)
        for _ in range(100):
            if self.read(f"control.peer[{peer}].key") == {"next": 0, "valid": 1}:
                self._did(f"control.peer[{peer}].key (written, and in force)")
                return
        raise ConsoleError(f"the key of peer {peer} is not in force; try again")

    def row(self, number: int) -> Row:
        """A row of the table; raises :exc:`ConsoleError`."""
        state, binding, operation = (self.read(f"table.row[{number}].{name}")
                                     for name in ("state", "binding", "operation_id"))
        return Row(number, bool(state["used"]), state["node"], state["slot"], state["stream"],
                   binding["paths"], binding["generation"], operation["value"])

    def peer_nodes(self) -> dict:
        """Valid peers, number to node; raises :exc:`ConsoleError`."""
        nodes = {n: self.read(f"control.peer[{n}].node") for n in range(self.peers)}
        return {n: node["number"] for n, node in nodes.items() if node["valid"]}

    def commit(self, row: int, *, used, generation, node=0, slot=0, stream=0, mask=0) -> None:
        """Bind or release a row, and record the change.

        While the row's last binding ends, the command is repeated, for up to :data:`PATIENCE`
        seconds.

        Raises
        ------
        ConsoleError
            Also if the table refuses; the message gives reason and remedy.
        """
        with _adding(f"row {row} is as it was"):
            if self._line.epoch is not None:
                self.write("table.epoch", value=self._line.epoch)
            self.write("table.operation_id", value=1 + secrets.randbelow(0xFFFF_FFFF))
            self.write("table.target", node=node, slot=slot, stream=stream)
            self.write("table.paths", mask=mask)
        end = time.monotonic() + PATIENCE
        while True:
            with _adding(f"`bindings` shows whether row {row} has changed"):
                self.write("table.commit", generation=generation, row=row, used=used)
                code = CommitCode(self.read("table.result")["code"])
            if code is not CommitCode.DRAINING or time.monotonic() > end:
                break
            time.sleep(PAUSE)
        if code is not CommitCode.DONE:
            raise ConsoleError(self._refusal(code, row, generation))
        self._did(f"row {row} is bound to {self.row(row)}, generation {generation}" if used
                  else f"row {row} is free")

    def _refusal(self, code, row, generation):
        """Reason why the table has refused a command, and the remedy."""
        match code:
            case CommitCode.FENCED:
                fence = self.read("table.fence_epoch")["value"]
                why = (f"the table takes no command of an epoch below {fence}, which somebody else "
                       f"set; to take over: write table.epoch {fence}")
            case CommitCode.BAD_ROW:
                why = f"rows are 0 to {self.rows - 1}"
            case CommitCode.BAD_TARGET:
                slot = ", --slot from 1" if self.is_host else ""
                why = (f"--node must be 0x001 to 0xffe{slot}, --stream 0 to {self.streams - 1}, "
                       f"--path 0 to {self.paths - 1}")
            case CommitCode.STALE:
                why = (f"the row's generation is {self.row(row).generation}, and {generation} is "
                       "not newer; leave --generation out")
            case CommitCode.IN_USE:
                why = f"it is bound to {self.row(row)}; first: unbind {row}"
            case CommitCode.DRAINING:
                why = "its last binding is still ending; give the command again"
            case _:
                why = "was the board reset meanwhile? Give the command again"
        return f"row {row}: {code.name}: {why}"


@contextmanager
def _adding(words):
    """Append these words to errors of the line."""
    try:
        yield
    except ConsoleError as error:
        raise ConsoleError(f"{error}; {words}") from None
