"""Who made a bitstream: version, commit and options, for registers, reports and people."""

import enum
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dxpu.factory import FactoryState, mac_text

__all__ = ["Goal", "Identity", "lines", "of_source", "release"]

#: What of the source tree makes a bitstream; changes elsewhere do not count.
SOURCES = ("hdl", "boards", "requirements.txt", "pyproject.toml")
#: Seconds that git may take.
PATIENCE = 10


class Goal(enum.IntEnum):
    """What synthesis was to save."""

    UNKNOWN = 0
    SPEED = 1
    AREA = 2


@dataclass(frozen=True)
class Identity:
    """What a bitstream was made from and how.

    Parameters
    ----------
    commit : int
        First 32 bits of the commit; 0 if it is not known.
    dirty : bool
        The sources were not those of the commit.
    goal : Goal
    seed : int
        Of the first placing that was tried; 31 bits.
    """

    commit: int = 0
    dirty: bool = False
    goal: Goal = Goal.UNKNOWN
    seed: int = 0

    def __str__(self):
        """Version and commit, in one line."""
        return f"DXPU {'.'.join(map(str, release()))}, {commit_text(self.commit, self.dirty)}"


def release() -> tuple[int, ...]:
    """Version of this package as three numbers; zeros if it is not installed."""
    try:
        return tuple(int(n) for n in version("dxpu").split(".")[:3])
    except (PackageNotFoundError, ValueError):
        return 0, 0, 0


def commit_text(commit: int, dirty: bool) -> str:
    """How a commit is written."""
    if not commit:
        return "commit unknown"
    return f"commit {commit:08x}{' with changes' if dirty else ''}"


def of_source(goal: str, seed: int, root: Path = Path(__file__).parents[2], *,
              sources: tuple[str, ...] = SOURCES) -> Identity:
    """The identity of what is built from ``sources`` in the source tree at ``root``.

    The commit is unknown without git, or if git does not keep this tree: an installed package may
    lie in a tree of something else.
    """
    ours = root / "boards" / "dxpu_boards" / "board.py"
    known = _git(root, "ls-files", "--error-unmatch", str(ours)) is not None
    commit = (_git(root, "rev-parse", "HEAD") if known else None) or "0"
    changes = _git(root, "status", "--porcelain", "--", *sources) if known else ""
    # Without an answer nobody knows that the sources are those of the commit.
    return Identity(int(commit[:8], 16), changes is None or bool(changes), Goal[goal.upper()], seed)


def _git(root, *words):
    """What git says, or ``None`` if it fails or is not there."""
    try:
        done = subprocess.run(["git", "--no-optional-locks", "-C", str(root), *words], text=True,
                              capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def lines(read, title: str | None) -> list[str]:
    """What a board says of itself, for people.

    Parameters
    ----------
    read
        Returns the fields of the register of a path, as a dict.
    title : str or None
        Name of the board; ``None`` if it is none that is known, so that it has no registers.
    """
    shape = read("control.shape")
    role = "host" if shape["role"] == 1 else "box"
    rows = [("proxy", f"{role}, {32 * shape['lanes']} bits"),
            ("shape", ", ".join(_count(number, what) for number, what in (
                (shape["rows"], "slot"), (shape["paths"] + 1, "path"), (shape["peers"], "peer"),
                (1 << shape["streams"], "stream"))))]
    if title:
        made, build = read("board.release"), read("board.build")
        goal = build["goal"]
        options = "unknown" if goal == Goal.UNKNOWN else (
            f"for {Goal(goal).name.lower()}, seed {read('board.seed')['value']}")
        rows += [("version", f"{made['major']}.{made['minor']}.{made['patch']}"),
                 ("commit", commit_text(read("board.commit")["value"], build["dirty"])
                  .removeprefix("commit ")),
                 ("options", options),
                 ("uptime", _time(read("board.uptime")["seconds"])), *_factory(read)]
    return [f"{name:<8} {text}" for name, text in (("board", title or "unknown"), *rows)]


#: What the console says of a record that is not valid.
NO_RECORD = {FactoryState.READING: "being read", FactoryState.ABSENT: "no record",
             FactoryState.DAMAGED: "record damaged", FactoryState.VERSION: "record of another "
             "version"}


def _factory(read):
    """Address, serial number and key, or why there are none."""
    record = read("board.factory")
    mac = read("board.mac_high")["value"] << 32 | read("board.mac_low")["value"]
    address = mac_text(mac.to_bytes(6, "big"))
    if record["state"] != FactoryState.VALID.value:
        names = {state.value: text for state, text in NO_RECORD.items()}
        return [("factory", names.get(record["state"], "unknown")), ("address", address)]
    serial, key = read("board.serial")["value"], read("board.fingerprint")["value"]
    return [("address", address), ("serial", f"{serial}" if serial else "none"),
            ("key", f"fingerprint {key:08x}" if record["key"] else "none")]


def _count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(seconds):
    """Days, hours, minutes and seconds."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{_count(days, 'day')}, {clock}" if days else clock
