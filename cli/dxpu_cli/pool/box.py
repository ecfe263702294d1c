"""``dxpu box``: boxes of a pool."""

import argparse

from . import nodes

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    nodes.add_arguments(parser, nodes.BOX)


def run(arguments: argparse.Namespace) -> int:
    """List, show, name, describe, close or open boxes."""
    return nodes.run(arguments, nodes.BOX)
