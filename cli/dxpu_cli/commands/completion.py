"""``dxpu completion``: lets a shell complete commands."""

import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> int:
    """Print the program that the shell has to read."""
    import argcomplete

    print(argcomplete.shellcode(["dxpu"], use_defaults=False, shell=arguments.shell))
    return 0
