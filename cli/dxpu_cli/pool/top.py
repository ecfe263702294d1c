"""``dxpu top``: watches a pool by its manager, or one node by its registers."""

import argparse
import json
import sys
import time
from collections import deque
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from dxpu_cli.options import decimal_number
from dxpu_tools.errors import Failed, UserError

__all__ = ["add_arguments", "run"]

#: Events that are kept for the screen.
EVENTS = 200
#: Core clock of a node of no known board, in MHz.
MHZ = "125"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    from dxpu_cli.console.command import BAUD, ETHERNET, NUMBER
    from .client import add_arguments as add_client
    parser.add_argument("port", nargs="?", metavar="PORT", help="a node, built with --observed: "
                        "serial port such as /dev/ttyUSB1, URL of pyserial such as "
                        f"socket://HOST:NUMBER, or {ETHERNET}NAME,MAC, a node with this factory "
                        "address behind an Ethernet interface; without it a manager's pool")
    parser.add_argument("--every", metavar="SECONDS", default="1",
                        help="time between two looks; on a terminal it goes on until q or Ctrl-C")
    parser.add_argument("--once", action="store_true",
                        help="show it once, as always when the output is no terminal")
    add_client(parser)
    node = parser.add_argument_group("a node")
    node.add_argument("--baud", type=int, default=BAUD, help="bits per second of a serial port")
    node.add_argument("--clock", metavar="MHZ", help="core clock (default: that of the board, "
                      f"{MHZ} if it is none of ours)")
    node.add_argument("--node-key", metavar="FILE", help="over Ethernet: key of the node, its "
                      "factory record or 32 hexadecimal digits")
    node.add_argument("--number", metavar="N", default=NUMBER, help="over Ethernet: manager "
                      "number, 1 to 4, no other manager's")
    node.add_argument("--slower", metavar="FACTOR", default="1", help="over Ethernet: all waits "
                      "are so many times longer, such as for a simulated node")


def run(arguments: argparse.Namespace) -> int:
    """Show a pool or a node, again and again on a terminal."""
    if arguments.port is None:
        from . import watch
        return watch.run(arguments)
    every = decimal_number("--every", arguments.every, 0.1, 3600)
    clock = None if arguments.clock is None else decimal_number("--clock", arguments.clock, 1, 1000)
    from dxpu_cli.console import command as console
    if arguments.baud <= 0:
        raise UserError(f"--baud must be positive, not {arguments.baud}")
    with ExitStack() as stack:
        line = stack.enter_context(console.line_at(SimpleNamespace(
            port=arguments.port, baud=arguments.baud, node_key=arguments.node_key,
            manager=arguments.number, slower=arguments.slower)))
        try:
            node = _Node(line, arguments.port, clock)
            if arguments.once or arguments.json or not sys.stdout.isatty():
                _say_once(node, every, arguments.json)
            else:
                _watch(node, every)
        except (console.ConsoleError, OSError) as error:
            raise Failed(str(error)) from None
    return 0


class _Node:
    """The watched node, and the newest events."""

    def __init__(self, line: Any, port: str, clock: float | None) -> None:
        from dxpu_cli.console import command as console

        from dxpu_cli.top.snapshot import NodeReader, Snapshot
        map = console.map_of(line)
        if "stages" not in map.blocks:
            raise Failed(f"the node at {port} was built without --observed: build or generate its "
                         "gateware with it, or read counters by `dxpu console PORT counters`")
        self._reader = NodeReader(line, map)
        self.name = port
        self._hz = 1e6 * (clock or self._board_mhz(line) or float(MHZ))
        self._last: Snapshot | None = None
        #: The last events, oldest first.
        self.events: deque[Any] = deque(maxlen=EVENTS)

    def _board_mhz(self, line: Any) -> float | None:
        from dxpu_cli.console import command as console
        board = console.board_of(line)
        return board and board.core_mhz("host" if self._reader.is_host else "box")

    def look(self) -> Any:
        """What has happened since the last look, or since a reset."""
        from dxpu_cli.top.look import look_at, was_reset
        now, last = self._reader.look(), self._last
        if last is not None and was_reset(last, now):
            last = None
            self.events.clear()
        self._last = now
        self.events.extend(now.events)
        return look_at(last, now, self._hz)

    def lines(self, look: Any, width: int, height: int, *, colours: bool) -> list[str]:
        """The look as lines."""
        from dxpu_cli.top.screen import draw
        return draw(look, list(self.events), self._reader.told, host=self._reader.is_host,
                    name=self.name, width=width, height=height, colours=colours)

    def as_json(self, look: Any) -> dict[str, Any]:
        """The look for programs."""
        said: dict[str, Any] = look.as_json()
        said["role"] = "host" if self._reader.is_host else "box"
        for event, words in zip(said["events"]["new"], look.now.events, strict=True):
            event["says"] = self._reader.told(words)
        return said


def _say_once(node: _Node, every: float, as_json: bool) -> None:
    """Print the difference of two looks."""
    node.look()
    time.sleep(every)
    look = node.look()
    print(json.dumps(node.as_json(look), indent=1) if as_json
          else "\n".join(node.lines(look, 200, 1000, colours=False)))


def _watch(node: _Node, every: float) -> None:
    from dxpu_cli.top.terminal import Terminal
    with Terminal() as terminal:
        while True:
            look = node.look()
            terminal.show(node.lines(look, *terminal.size, colours=True))
            if terminal.wait(every):
                return
