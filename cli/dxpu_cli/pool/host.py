"""``dxpu host``: hosts of a pool."""

import argparse

from . import nodes

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    nodes.add_arguments(parser, nodes.HOST)


def run(arguments: argparse.Namespace) -> int:
    """List, show, name, close or open hosts."""
    return nodes.run(arguments, nodes.HOST)
