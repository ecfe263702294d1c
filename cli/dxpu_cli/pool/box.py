"""``dxpu box``: boxes of a pool, and a simulated one."""

import argparse

from . import nodes, simulated_box

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    simulated_box.add_arguments(nodes.add_arguments(parser, nodes.BOX))


def run(arguments: argparse.Namespace) -> int:
    """List, show, name, describe, close or open boxes; or simulate one."""
    if arguments.job == "simulate":
        return simulated_box.run(arguments)
    return nodes.run(arguments, nodes.BOX)
