"""Steps of a bench, for the command that has started the bench to show."""

from pathlib import Path

__all__ = ["Steps"]


class Steps:
    """Writes the progress of a bench to ``progress.txt``, line by line: ``step TEXT`` and ``detail
    TEXT``.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path):
        self._file = open(folder / "progress.txt", "w", buffering=1)  # noqa: SIM115

    def step(self, text: str) -> None:
        """Report the next step."""
        self._file.write(f"step {text}\n")

    def detail(self, text: str) -> None:
        """Report the activity of the step, or its result."""
        self._file.write(f"detail {text}\n")
