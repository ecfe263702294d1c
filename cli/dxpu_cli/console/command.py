"""``dxpu console``: registers of a board over its serial line (:class:`dxpu.console.Console`),
or of a node over Ethernet, by frames."""

import re
import time
from contextlib import contextmanager, suppress

from dxpu.csr import Access
from dxpu_boards import registers
from dxpu_boards.register_line import ConsoleError, NoRegister, RegisterLine
from dxpu_tools.errors import UserError

from . import binding, proxy_setup
from .identity import lines

__all__ = ["BAUD", "ETHERNET", "NUMBER", "ConsoleError", "NoRegister", "RegisterLine",
           "add_arguments", "board_of", "line_at", "map_of", "run"]

BAUD = 115_200
#: Start of a port that is an Ethernet interface and a node.
ETHERNET = "eth:"
#: Manager number of a console: the last one, so that no manager's association ends.
NUMBER = "4"
#: Longest interval of ``--watch``, in seconds: a day.
LONGEST = 86_400


def map_of(line: RegisterLine):
    """Register map (:class:`dxpu.csr.AddressMap`) of the proxy, and of the board if it is known.

    Raises
    ------
    ConsoleError
        If no proxy answers.
    """
    from dxpu_manage import SHAPE_WORDS, check_identity, proxy_of
    identity = line.read(SHAPE_WORDS[0])
    try:
        check_identity(identity)
    except ValueError as error:
        raise ConsoleError(str(error)) from None
    shape, security = line.read(SHAPE_WORDS[1]), None
    with suppress(NoRegister):  # a proxy of an earlier version has no such register
        security = line.read(SHAPE_WORDS[2])
    proxy = proxy_of(identity, shape, security)
    board = board_of(line)
    if not board:
        return proxy.registers
    lanes = proxy.registers.find("control.shape")[0].register.unpack(shape)["lanes"]
    return registers.map_of(proxy, board, width=32 * lanes)


def board_of(line):
    """The :class:`~dxpu_boards.board.Board` at the other end; ``None`` for an unknown board."""
    from dxpu_boards.registry import named
    block = registers.board_block("", paths=1)
    base = registers.BASES["board"]
    try:
        identity = line.read(base + block.address("identity"))
    except NoRegister:
        return None
    if identity != registers.IDENTITY:
        return None
    return named(line.read(base + block.address("name")))


def paths_of(map) -> list[str]:
    """Paths of all registers, in order of their addresses."""
    return [f"{name}.{placed.path}" for name, (_, block) in sorted(
        map.blocks.items(), key=lambda item: item[1][0]) for placed in block.placed]


def show(map, path: str, value: int) -> str:
    """A register as a line of text: address, value, and the fields if there are several."""
    placed, base = map.find(path)
    fields = placed.register.unpack(value)
    meaning = []
    for f in placed.register.fields:
        name = next((v.name for v in f.values or () if v.value == fields[f.name]), None)
        meaning.append(f"{f.name}={name or f'{fields[f.name]:#x}'}")
    text = f"{base + placed.address:04x}  {path:<34} {value:08x}"
    return text if len(meaning) < 2 else f"{text}  {' '.join(meaning)}"


def _number(text, what):
    try:
        value = int(text, 0)
    except ValueError:
        raise UserError(f"{what} must be a number such as 12 or 0x1f, not {text!r}") from None
    if value < 0:
        raise UserError(f"{what} must not be negative, not {text!r}")
    return value


def written(register, words: list[str], now) -> int:
    """Value to write, from words such as ``number=5`` or one number for the whole register.

    Fields without a word keep their value; pulses and flags become 0. ``now`` is a function that
    reads the register.

    Raises
    ------
    UserError
    """
    if len(words) == 1 and "=" not in words[0]:
        value = _number(words[0], "a register's value")
        if value >> 32:
            raise UserError(f"a register's value has 32 bits, {words[0]} has more")
        return value
    fields = {f.name: f for f in register.fields}
    values = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or name not in fields:
            raise UserError(f"{register.name} has no field {name!r}: say one of "
                            f"{', '.join(f'{n}=...' for n in fields)}")
        value = _number(text, name)
        if value >> fields[name].width:
            raise UserError(f"{name} has {fields[name].width} bits, {text} has more")
        values[name] = value
    kept = [n for n, f in fields.items() if f.access is Access.RW and n not in values]
    if kept:
        held = register.unpack(now())
        values |= {name: held[name] for name in kept}
    return register.pack(**values)


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("port", help="serial port such as /dev/ttyUSB1, or a URL of pyserial; or "
                        f"{ETHERNET}NAME,MAC, a node with this factory address behind an "
                        "Ethernet interface")
    parser.add_argument("--baud", type=int, default=BAUD, help="bits per second of a serial port")
    parser.add_argument("--node-key", metavar="FILE", help="over Ethernet: key of the node, its "
                        "factory record or 32 hexadecimal digits")
    parser.add_argument("--manager", default=NUMBER, metavar="N", help="over Ethernet: manager "
                        f"number, 1 to 4 (default: {NUMBER}); no other manager's")
    parser.add_argument("--slower", default="1", metavar="FACTOR", help="over Ethernet: all waits "
                        "are so many times longer, such as for a simulated node")
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    job = jobs.add_parser("read", help="show registers")
    job.add_argument("path", nargs="+", metavar="REGISTER",
                     help="such as control.node; * stands for anything: 'control.session[0].*'")
    job = jobs.add_parser("write", help="write a register")
    job.add_argument("path", metavar="REGISTER")
    job.add_argument("value", nargs="+", metavar="VALUE",
                     help="a number, or fields such as number=5; other fields keep theirs")
    job = jobs.add_parser("counters", help="show the counters that are not 0")
    job.add_argument("--watch", type=float, metavar="SECONDS", default=None,
                     help="go on, and show those that rise, as often as this")
    jobs.add_parser("identity", help="say which board this is, and who made its bitstream")
    jobs.add_parser("list", help="name all registers of the proxy")
    proxy_setup.add_jobs(jobs)
    binding.add_jobs(jobs)


def run(arguments) -> int:
    """Do one job; returns 1 if the board fails to do it."""
    if arguments.baud <= 0:
        raise UserError(f"--baud must be positive, not {arguments.baud}")
    watch = getattr(arguments, "watch", None)
    if watch is not None and not 0 < watch <= LONGEST:
        raise UserError(f"--watch must be above 0 and at most {LONGEST}, not {watch:g}")
    with line_at(arguments) as line:
        try:
            _JOBS[arguments.job](line, map_of(line), arguments)
        except (ConsoleError, OSError) as error:  # serial.SerialException is one of the latter
            print(f"dxpu console: {error}")
            return 1
    return 0


@contextmanager
def line_at(arguments):
    """Registers at ``port`` of the options; raises :exc:`UserError`."""
    if arguments.port.startswith(ETHERNET):
        from . import frame_line
        with frame_line.line_of(arguments) as line:
            yield line
        return
    if arguments.node_key is not None:
        raise UserError(f"--node-key is for a port such as {ETHERNET}eth0,02:51:00:00:00:01")
    with _serial(arguments) as port:
        yield RegisterLine(port)


def _serial(arguments):
    import serial
    try:
        return serial.serial_for_url(arguments.port, arguments.baud, timeout=0.5)
    except (serial.SerialException, ValueError, OverflowError, OSError) as error:
        raise UserError(f"cannot open {arguments.port}: {error}") from None


def _found(map, patterns):
    """Paths that match one of the patterns; raises :exc:`UserError` for a pattern without a
    match."""
    result = []
    for pattern in patterns:
        rule = re.escape(pattern).replace(r"\*", ".*")
        fits = [path for path in paths_of(map) if re.fullmatch(rule, path)]
        if not fits:
            raise UserError(f"no register {pattern}: `list` names all")
        result += fits
    return result


def _read(line, map, arguments):
    for path in _found(map, arguments.path):
        print(show(map, path, line.read(map.address(path))))


def _write(line, map, arguments):
    path, *more = _found(map, [arguments.path])
    if more:
        raise UserError(f"{arguments.path} is {1 + len(more)} registers: write one")
    placed, base = map.find(path)
    address = base + placed.address
    value = written(placed.register, arguments.value, lambda: line.read(address))
    line.write(address, value)
    print(show(map, path, value))


def _counters(line, map, arguments):
    base, block = map.blocks["counters"]

    def totals():
        return {p.path: line.read(base + p.address) for p in block.placed}

    before = totals()
    for name, total in before.items():
        if total:
            print(f"{total:>10}  {name}")
    while arguments.watch:
        time.sleep(arguments.watch)
        now = totals()
        for name, total in now.items():
            if total != before[name]:
                print(f"{total:>10}  {name}  +{total - before[name] & 0xFFFFFFFF}", flush=True)
        before = now


def _list(line, map, arguments):
    for path in paths_of(map):
        print(f"{map.address(path):04x}  {path}")


def _identity(line, map, arguments):
    def fields(path):
        return map.find(path)[0].register.unpack(line.read(map.address(path)))

    board = board_of(line)
    print("\n".join(lines(fields, board and f"{board.name} ({board.title})")))


_JOBS = {"read": _read, "write": _write, "counters": _counters, "list": _list,
         "identity": _identity, **proxy_setup.JOBS, **binding.JOBS}
