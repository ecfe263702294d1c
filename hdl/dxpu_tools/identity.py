"""Origin of a bitstream or a Verilog file: version, commit and options."""

import enum
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Goal", "Identity", "commit_text", "of_source", "release"]

#: Parts of the source tree that determine a bitstream; changes elsewhere do not count.
SOURCES = ("hdl", "boards", "requirements.txt", "pyproject.toml")
#: Time limit of git, in seconds.
PATIENCE = 10


class Goal(enum.IntEnum):
    """Goal of synthesis."""

    UNKNOWN = 0
    SPEED = 1
    AREA = 2


@dataclass(frozen=True)
class Identity:
    """Sources and options of a bitstream.

    Parameters
    ----------
    commit : int
        First 32 bits of the commit; 0 if unknown.
    dirty : bool
        The sources differ from the commit.
    goal : Goal
    seed : int
        Seed of the first placement that was tried; 31 bits.
    """

    commit: int = 0
    dirty: bool = False
    goal: Goal = Goal.UNKNOWN
    seed: int = 0

    def __str__(self):
        """Version and commit, in one line."""
        return f"DXPU {'.'.join(map(str, release()))}, {commit_text(self.commit, self.dirty)}"


def release() -> tuple[int, ...]:
    """Version of this package as three numbers; zeros if the package is not installed."""
    try:
        return tuple(int(n) for n in version("dxpu").split(".")[:3])
    except (PackageNotFoundError, ValueError):
        return 0, 0, 0


def commit_text(commit: int, dirty: bool) -> str:
    """Text of a commit."""
    if not commit:
        return "commit unknown"
    return f"commit {commit:08x}{' with changes' if dirty else ''}"


def of_source(goal: str, seed: int, root: Path = Path(__file__).parents[2], *,
              sources: tuple[str, ...] = SOURCES) -> Identity:
    """Identity of a build from ``sources`` in the source tree at ``root``.

    The commit is unknown without git, or if this tree is not under git: an installed package may
    lie in the tree of another project.
    """
    ours = root / "boards" / "dxpu_boards" / "board.py"
    known = _git(root, "ls-files", "--error-unmatch", str(ours)) is not None
    commit = (_git(root, "rev-parse", "HEAD") if known else None) or "0"
    changes = _git(root, "status", "--porcelain", "--", *sources) if known else ""
    # Without an answer of git the sources count as changed.
    return Identity(int(commit[:8], 16), changes is None or bool(changes), Goal[goal.upper()], seed)


def _git(root, *words):
    """Output of git, or ``None`` if git fails or is missing."""
    try:
        done = subprocess.run(["git", "--no-optional-locks", "-C", str(root), *words], text=True,
                              capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


