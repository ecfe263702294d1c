"""The manager's page has the states and the causes that the code has."""

import re
from pathlib import Path

from dxpu_manager import TRANSITIONS, State

PAGE = (Path(__file__).parents[2] / "docs/reference/manager.md").read_text()


def table(heading, columns):
    """Rows of the first table below a line that begins with some text."""
    text = PAGE[PAGE.index(heading):]
    rows = re.findall(r"^\|(.+)\|$", text[text.index("|---"):].split("\n\n")[0], re.MULTILINE)[1:]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert cells and all(len(row) == columns for row in cells)
    return cells


def test_states():
    assert [row[0] for row in table("| state | the GPU is |", 2)] == [str(s) for s in State]


def test_causes():
    order = {str(state): n for n, state in enumerate(State)}
    assert table("| cause | from | to |", 3) == [
        [cause, ", ".join(sorted(map(str, origins), key=order.get)), to]
        for cause, (origins, to) in TRANSITIONS.items()]
