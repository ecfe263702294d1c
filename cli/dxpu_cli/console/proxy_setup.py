"""``dxpu console PORT setup``: makes a newly configured proxy ready for use.

Ref: docs/howto/set-up-a-box-for-a-pc.md
"""

import math
import time

from dxpu.fabric.session.session import Mode
from dxpu.fabric.wire.format import Role
from dxpu_boards.operate import Proxy
from dxpu_boards.register_line import ConsoleError
from dxpu_cli.options import NO_KEYS, key_in, whole_number
from dxpu_tools.errors import UserError

from .binding import add_way, mask_of

__all__ = ["JOBS", "add_jobs", "wait_units"]

#: Wait of a box for a PC, in milliseconds.
PATIENT = "20"
#: Unit of `control.retry` and `control.hello`, in cycles of the core clock.
UNIT = 64


def add_jobs(jobs):
    """The subcommand."""
    job = jobs.add_parser("setup", help="make a box or a host ready: node, peer, session, bindings")
    job.add_argument("--node", required=True, help="node that the proxy becomes, such as 0x101")
    peer = job.add_mutually_exclusive_group(required=True)
    peer.add_argument("--host", metavar="NODE", help="of a box: the host that uses it, such as 1")
    peer.add_argument("--box", metavar="NODE", help="of a host: a box that it uses")
    add_way(job)
    job.add_argument("--slots", metavar="LIST", help="slots of the box to bind, such as 1,2 "
                     "(default: all of a box that have a GPU; none for a host)")
    job.add_argument("--wait", metavar="MS", help="first wait for an answer of the peer, in "
                     f"milliseconds (default: {PATIENT} for a box, as a PC needs; left alone for "
                     "a host)")
    trust = job.add_mutually_exclusive_group()
    trust.add_argument("--key", metavar="FILE", help="key of the two, 32 hexadecimal digits")
    trust.add_argument("--clear", action="store_true", help="sessions with the peer need no key: "
                       "whoever reaches the fabric can take them over")
    job.add_argument("--clock", metavar="MHZ", help="core clock, if the board is none of ours")


def wait_units(ms: float, mhz: float) -> int:
    """Value of `control.retry.wait` and `control.hello.wait` for a wait of at least ``ms``.

    Raises
    ------
    UserError
        If no value of the register fits.
    """
    exact = round(ms * mhz * 1000 / UNIT, 6)
    units = math.ceil(exact) if math.isfinite(exact) else 0
    if not 1 <= units <= 0xFFFF:
        raise UserError(f"--wait must be above 0 and at most {0xFFFF * UNIT / mhz / 1000:.4g} at "
                        f"{mhz:g} MHz, not {ms:g}")
    return units


def _number(option, text):
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{option} must be a number, not {text!r}") from None


def _mhz(proxy, text):
    """Core clock in MHz, from the option or from the board."""
    from dxpu_boards.registry import named
    if text is not None:
        mhz = _number("--clock", text)
        if not 1 <= mhz <= 1000:
            raise UserError(f"--clock must be from 1 to 1000, not {text!r}")
        return mhz
    board = named(proxy.read("board.name")["crc"]) if "board" in proxy.map.blocks else None
    if board is None:
        raise UserError("the board is none of ours: give its core clock by --clock MHZ")
    is_host = proxy.read("control.shape")["role"] == Role.HOST
    return board.core_mhz("host" if is_host else "box")


def _slots(text, most):
    slots = [whole_number("--slots", part, 1, most) for part in text.split(",")]
    if len(set(slots)) < len(slots):
        raise UserError(f"--slots must not name a slot twice, as {text!r} does")
    return slots


class _Setup:
    """Set-up of a proxy; checks everything before the first write."""

    def __init__(self, proxy, arguments):
        self._proxy = proxy
        theirs, wrong = (("box", "host") if proxy.is_host else ("host", "box"))
        if getattr(arguments, theirs) is None:
            raise UserError(f"this is a {wrong}: say --{theirs} NODE instead of --{wrong}")
        self.node = whole_number("--node", arguments.node, 1, 0xFFE)
        self.peer_node = whole_number(f"--{theirs}", getattr(arguments, theirs), 1, 0xFFE)
        if self.node == self.peer_node:
            raise UserError(f"--node and --{theirs} must be two nodes, not both {self.node:#05x}")
        self.stream = whole_number("--stream", arguments.stream, 0, proxy.streams - 1)
        self.mask = mask_of(arguments.path)
        if self.mask >> proxy.paths:
            raise UserError(f"--path must be from 0 to {proxy.paths - 1}")
        self.wait = None
        if arguments.wait is not None or not proxy.is_host:
            self.wait = wait_units(_number("--wait", arguments.wait or PATIENT),
                                   _mhz(proxy, arguments.clock))
        self.key = self._wanted_key(arguments)
        slots = self._wanted_slots(arguments.slots)
        self._peer = self._find_peer()
        self._rows = self._find_rows(slots)

    def _wanted_key(self, arguments):
        """The key of the peer; ``None`` if its sessions need none."""
        if not self._proxy.has_keys:
            if arguments.key is not None:
                raise UserError("--key: this proxy was built without keys; build it with --keys")
            return None
        if arguments.key is None and not arguments.clear:
            raise UserError("this proxy opens sessions under a key: give it by --key FILE, or say "
                            "--clear for sessions that whoever reaches the fabric can take over")
        return None if arguments.clear else key_in("--key", arguments.key)

    def _wanted_slots(self, text):
        """Slots of the box to bind."""
        proxy = self._proxy
        if proxy.is_host:
            return _slots(text, 255) if text else []
        there = proxy.rows
        if "board" in proxy.map.blocks:
            there = proxy.read("board.gpus")["count"]
        slots = _slots(text, proxy.rows) if text else range(1, there + 1)
        if (last := max(slots)) > there:
            raise UserError(f"--slots: slot {last} is empty; this box has "
                            + ("a GPU in slot 1 only" if there == 1 else
                               f"GPUs in slots 1 to {there}"))
        return slots

    def _find_peer(self):
        nodes = self._proxy.peer_nodes()
        for n, node in nodes.items():
            if node == self.peer_node:
                return n
        free = set(range(self._proxy.peers)) - set(nodes)
        if not free:
            raise ConsoleError(f"all {self._proxy.peers} peers are taken: write "
                               "'control.peer[n].node' valid=0 frees one")
        return min(free)

    def _find_rows(self, slots):
        """Rows to bind, each with its slot of the box."""
        proxy = self._proxy
        rows = [proxy.row(n) for n in range(proxy.rows)]
        if not proxy.is_host:
            found = [(rows[slot - 1], slot) for slot in slots]
        else:
            found, free = [], [row for row in rows if not row.used]
            for slot in slots:
                own = [row for row in rows if row.used and row.target[:2] == (self.peer_node, slot)]
                if not own and not free:
                    raise ConsoleError(f"no row is free for slot {slot}: `bindings` shows what is "
                                       "bound, `unbind ROW` frees one")
                found.append((own[0] if own else free.pop(0), slot))
        for row, slot in found:
            if row.used and row.target != (self.peer_node, slot, self.stream):
                raise ConsoleError(f"row {row.number} is bound to {row}; first: unbind "
                                   f"{row.number}, or leave it out by --slots")
        return found

    def write(self):
        """Write the registers; nothing begins before everything that it needs is set."""
        proxy = self._proxy
        proxy.change("control.node", number=self.node)
        self._add_peer()
        if self.wait is not None:
            proxy.change("control.retry", wait=self.wait)
            proxy.change("control.hello", wait=self.wait)
        if not proxy.read("control.boot")["counter"]:
            # A new value each time: the seconds, modulo some 18 hours.
            proxy.change("control.boot", counter=1 + int(time.time()) % 0xFFFF)
        session = self._peer * proxy.streams + self.stream
        mode = Mode.OPENS if proxy.is_host else Mode.ANSWERS
        proxy.change(f"control.session[{session}].mode", opener=mode.value)
        if not proxy.is_host:
            there = proxy.read("control.present")["slots"]
            proxy.change("control.present",
                         slots=there | sum(1 << slot - 1 for _, slot in self._rows))
        return {slot: self._bind(row, slot) for row, slot in self._rows}

    def _add_peer(self):
        """Tell the proxy the peer, and whether its sessions need a key, and which."""
        proxy, path = self._proxy, f"control.peer[{self._peer}].node"
        fields = {"number": self.peer_node, "valid": 1}
        if proxy.has_keys:
            fields["clear"] = int(self.key is None)
            if (held := proxy.read(path))["valid"] and held["clear"] != fields["clear"]:
                # It counts when the peer becomes valid, while its sessions are off.
                for n in range(proxy.streams):
                    proxy.change(f"control.session[{self._peer * proxy.streams + n}].mode",
                                 opener=Mode.REGISTERS.value)
                proxy.change(path, valid=0)
        proxy.change(path, **fields)
        if self.key is not None:
            proxy.give_key(self._peer, self.key)

    def _bind(self, row, slot):
        """Bind a slot; returns the generation."""
        if row.used and row.mask == self.mask:
            return row.generation
        generation = row.generation if row.used else row.generation + 1 & 0xFFFF
        self._proxy.commit(row.number, used=1, generation=generation, node=self.peer_node,
                           slot=slot, stream=self.stream, mask=self.mask)
        return generation


def _setup(line, map, arguments):
    proxy = Proxy(line, map)
    setup = _Setup(proxy, arguments)
    try:
        generations = setup.write()
    except ConsoleError as error:
        raise ConsoleError(f"{error} (done before: {'; '.join(proxy.done) or 'nothing'}). Mend "
                           "that, and give the command again") from None
    print(f"{'host' if proxy.is_host else 'box'} {setup.node:#05x} is ready for "
          f"{'box' if proxy.is_host else 'host'} {setup.peer_node:#05x}")
    if setup.key is None:
        print(NO_KEYS)
    if proxy.is_host:
        return
    path = (setup.mask & -setup.mask).bit_length() - 1
    for generation in sorted(set(generations.values())):
        slots = ",".join(str(slot) for slot, g in generations.items() if g == generation)
        more = "".join(f" --{option} {value}" for option, value, usual in (
            ("node", setup.peer_node, 1), ("stream", setup.stream, 0), ("path", path, 0),
            ("generation", generation, 1)) if value != usual)
        if setup.key is not None:
            more += " --key FILE"
        print(f"if that is a PC: sudo dxpu slots --iface NAME --box {setup.node:#05x} "
              f"--slots {slots}{more}")


#: Function of each subcommand, with arguments line, register map, options.
JOBS = {"setup": _setup}
