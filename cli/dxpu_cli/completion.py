"""Completes a command line in a shell; the shell asks ``dxpu`` itself, by variables of the
environment.

Ref: argcomplete, which speaks to bash, zsh and fish.
"""

import argparse
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import argcomplete

__all__ = ["complete"]

#: What an argument that nobody chooses from is called if it is a file or a folder.
_FILES = {"DIR", "FILE", "FOLDER", "SETTINGS", "file", "output", "port", "record"}

Completer = Callable[..., list[str]]
#: Makes the completer of an argument of a command, if there is one.
Names = Callable[[argparse.Action, tuple[str, ...]], Completer | None]


def complete(options: Callable[[str | None], argparse.ArgumentParser],
             commands: Mapping[str, tuple[str, str]]) -> None:
    """Offer words by which the line of ``$COMP_LINE`` could go on, and end the process.

    Parameters
    ----------
    options : function
        Makes the parser, with the options of a command.
    commands : mapping
        Module and help line of each command.
    """
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    words = argcomplete.split_line(line, point)[3][int(os.environ["_ARGCOMPLETE"]):]
    command = words[0] if words and words[0] in commands else None
    parser = options(command)
    if command is not None:
        names: Names | None = None
        if commands[command][0].startswith("dxpu_cli.pool."):
            names = importlib.import_module("dxpu_cli.pool.names").completer
        _equip(parser, (), names)
    argcomplete.autocomplete(parser, always_complete_options=False,
                             default_completer=argcomplete.SuppressCompleter())


def _equip(parser: argparse.ArgumentParser, words: tuple[str, ...], names: Names | None) -> None:
    """Give a completer to each argument with a known kind of values."""
    for action in parser._actions:
        made: Any = action
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                _equip(sub, (*words, name), names)
        elif (action.metavar or action.dest) in _FILES:
            made.completer = argcomplete.FilesCompleter()
        elif names is not None and (completer := names(action, words)) is not None:
            made.completer = completer
