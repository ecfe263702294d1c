"""``python -m dxpu.switch DIRECTORY`` writes the register pages of the virtual switch."""

import sys
from pathlib import Path

from .config_map import DOWNSTREAM, UPSTREAM, render


def main(argv: list[str]) -> int:
    """Write the register pages into the directory named by the one argument."""
    if len(argv) != 1:
        print("usage: python -m dxpu.switch DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(argv[0])
    directory.mkdir(parents=True, exist_ok=True)
    for kind in (UPSTREAM, DOWNSTREAM):
        (directory / f"{kind}-port.md").write_text(render(kind), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
