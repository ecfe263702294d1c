"""Tables of ``docs/reference/manager-service.md``: commands, addresses, messages and metrics.

``python -m dxpu_cli.pages.manager_service`` updates the page; a test compares.
"""

import argparse
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from dxpu_cli.main import COMMANDS
from dxpu_manager.service.metrics import METRICS
from dxpu_manager.service.redfish import Redfish
from dxpu_manager.service.redfish.messages import REGISTRY
from dxpu_manager.service.redfish.table import table
from dxpu_tools.files import write_text

from .fabric_spec import updated

__all__ = ["PAGE", "parts"]

#: The page, in a source tree.
PAGE = Path(__file__).parents[3] / "docs/reference/manager-service.md"


def _rows(*titles: str, rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _jobs(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[str, str]]:
    """Commands below a parser, with their help lines."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name in action.choices:
                yield f"{words} {name}", texts[name]


def commands() -> str:
    """A row for each command to a manager."""
    rows = []
    for name, (module, text) in COMMANDS.items():
        if not module.startswith("dxpu_cli.pool."):
            continue
        parser = argparse.ArgumentParser()
        importlib.import_module(module).add_arguments(parser)
        jobs = list(_jobs(parser, f"dxpu {name}"))
        rows += [(f"`{words}`", line) for words, line in jobs or [(f"dxpu {name}", text)]]
    return _rows("command", "does", rows=rows)


def addresses() -> str:
    """A row for each address and method."""
    assert Redfish
    rows = []
    for path, methods in table.paths():
        for method in methods:
            does = table.find(re.sub(r"{\w+}", "x", path))[0][method]
            first = (inspect.getdoc(does.does) or "").split("\n\n")[0].replace("\n", " ")
            rows.append((f"`{method} {path}`", first.rstrip("."), does.privilege or "none"))
    return _rows("request", "means", "privilege", rows=rows)


def messages() -> str:
    """A row for each message of the own registry."""
    return _rows("message", "severity", "what to do", rows=[
        (f"`DxPU.1.0.{key}`", text.severity, text.resolution) for key, text in REGISTRY.items()])


def metrics() -> str:
    """A row for each metric."""
    return _rows("metric", "labels", "means", rows=[
        (f"`{name}`", ", ".join(labels), text) for name, (text, labels) in METRICS.items()])


def parts() -> dict[str, str]:
    """All that is generated on the page, by name."""
    return {"commands": commands(), "addresses": addresses(), "messages": messages(),
            "metrics": metrics()}


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(), **parts()))
