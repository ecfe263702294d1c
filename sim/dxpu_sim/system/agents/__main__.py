"""``python -m dxpu_sim.system.agents FOLDER [--hosts N] [--boxes N] [--cards N] [--rows N]
[--loss SHARE]``: light nodes behind a socket in a folder, until standard input ends.

Each line on standard input is done (see :meth:`.program.NodesProgram.do`), and answered by a line.
"""

import argparse
import asyncio
import os
import sys
import threading
from pathlib import Path

from .program import NodesProgram, make_agents


def _lines(loop, program):
    for line in sys.stdin:
        def does(line=line):
            try:
                print("done", program.do(line), flush=True)
            except (ValueError, KeyError, StopIteration) as error:
                print("failed", repr(error), flush=True)
        loop.call_soon_threadsafe(does)
    os._exit(0)


async def _main(arguments):
    program = NodesProgram(arguments.folder, make_agents(
        arguments.hosts, arguments.boxes, arguments.cards, rows=arguments.rows,
        paths=arguments.paths), loss=arguments.loss)
    threading.Thread(target=_lines, args=(asyncio.get_running_loop(), program),
                     daemon=True).start()
    await program.serve(lambda: print("ready", flush=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, number in (("--hosts", 3), ("--boxes", 2), ("--cards", 4), ("--rows", 8),
                         ("--paths", 1)):
        parser.add_argument(name, type=int, default=number)
    parser.add_argument("--loss", type=float, default=0.0)
    asyncio.run(_main(parser.parse_args()))
