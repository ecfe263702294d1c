"""Pages to be followed by a reader: commands, their expected output, and diffs.

CONTRIBUTING.md explains the fences of blocks. A block of the kind ``text`` directly behind commands
or a program is the expected output: its lines are searched in the real output. Three dots stand for
anything; times and numbers of passed tests are not compared.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.examples import ROOT, Block, blocks

__all__ = ["ROOT", "Step", "added", "copy_tree", "environment", "follow", "pieces", "steps",
           "touched"]

#: Parts of a clone, without generated files.
PARTS = ("hdl", "model", "sim", "host", "boards", "manager", "cli", "tests", "docs")


@dataclass
class Step:
    """Commands, or a program, with the expected output."""

    block: Block
    shown: str = ""


def _line(block):
    return int(block.place.rpartition(":")[2])


def steps(page: Path, *, notes: tuple[str, ...] = ()) -> list[Step]:
    """Commands for the reader: blocks of the kind ``sh``, and blocks with a comment in ``notes``
    unless in another language.
    """
    found, behind = [], 0
    for block in blocks(page):
        end = _line(block) + block.text.count("\n") + 1
        if block.info == "sh" or block.note in notes and block.info in ("console", "python"):
            found.append(Step(block))
            behind = end + 2
        elif block.info == "text" and _line(block) == behind:
            found[-1].shown = block.text
    return found


def pieces(page: Path, kind: str) -> list[str]:
    """Texts of a page's blocks of a kind."""
    return [block.text for block in blocks(page) if block.info == kind]


def touched(diff: Path) -> list[str]:
    """Files changed by a diff."""
    return re.findall(r"^diff --git a/(\S+) b/", diff.read_text(), re.M)


def added(diff: Path) -> list[str]:
    """Lines added by a diff."""
    return [line[1:] for line in diff.read_text().splitlines()
            if line.startswith("+") and not line.startswith("+++")]


def copy_tree(to: Path) -> Path:
    """A copy of this tree, for changes; ``.venv`` is the environment of the running Python."""
    for name in PARTS:
        shutil.copytree(ROOT / name, to / name,
                        ignore=shutil.ignore_patterns("__pycache__", ".venv", "build"))
    for file in ROOT.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, to)
    (to / ".venv").symlink_to(sys.prefix)
    return to


def environment(tree: Path) -> dict[str, str]:
    """Environment with the packages of a copy before the installed packages."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(
        [str(tree / name) for name in ("hdl", "model", "sim", "host", "boards", "manager", "cli")]
        + [str(tree)]), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": "-p no:cacheprovider"}


def _plain(text):
    return re.sub(r"\b\d+ passed, \d+ deselected|\b\d+ passed", "passed", re.sub(
        r"\d+\.\d+ ?s\b", "0 s", text))


def follow(step: Step, tree: Path) -> str:
    """Carry out a step in a copy; returns the output.

    Raises :exc:`AssertionError` if the output differs from the page, or a command fails.
    """
    block = step.block
    program = [sys.executable, "-"] if block.info == "python" else ["sh", "-e"]
    done = subprocess.run(program, input=block.text, cwd=tree, text=True, env=environment(tree),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{block.place} ended with {done.returncode}:\n{done.stdout}"
    said = _plain(done.stdout)
    for line in step.shown.splitlines():
        for part in _plain(line).split("..."):
            assert part.rstrip() in said, (
                f"{block.place} does not print {line!r}, but\n{done.stdout}")
    return done.stdout
