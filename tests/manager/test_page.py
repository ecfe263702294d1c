"""The manager's page has the states and the causes that the code has, in tables and pictures."""

import importlib
import itertools
import re
from pathlib import Path

import pytest

from dxpu_manager import TRANSITIONS, Job, Progress, State, Task
from dxpu_manager.records import ADVANCES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference/manager.md").read_text()


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


@pytest.fixture(params=["gpu_states", "task_states"])
def picture(request, monkeypatch):
    """The program that draws a picture."""
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    return importlib.import_module(request.param)


def test_the_picture_has_every_change_and_no_other(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    drawn = importlib.import_module("gpu_states")
    every = sorted((str(cause), origin, to) for cause, (origins, to) in TRANSITIONS.items()
                   for origin in origins)
    assert every == sorted(
        (cause, origin, to) for (source, to), causes in drawn.arrows().items()
        for cause in causes for origin in (source if source is drawn.UNUSED else {source}))
    text = drawn.draw()
    assert text.count("marker-end") == len(drawn.ROUTES)
    assert all(f">{state}</text>" in text for state in State)


def test_arrows_lead_from_their_state_to_their_state_and_through_no_other(picture):
    """A corner lies on the border of what it leaves or reaches."""
    boxes = {name: (x, y, x + 120, y + 40) for name, (x, y, _) in picture.STATES.items()}
    places = dict(boxes)
    if hasattr(picture, "UNUSED"):
        x, y, width, height = picture.FRAME
        places[picture.UNUSED] = x, y, x + width, y + height
    for (source, to), (corners, *_) in picture.ROUTES.items():
        for place, (x, y) in ((places[source], corners[0]), (places[to], corners[-1])):
            left, top, right, bottom = place
            assert left <= x <= right and top <= y <= bottom, (source, to)
            assert x in (left, right) or y in (top, bottom), (source, to)
        for (ax, ay), (bx, by) in itertools.pairwise(corners):
            assert ax == bx or ay == by, (source, to)
            for name, (left, top, right, bottom) in boxes.items():
                assert max(ax, bx) <= left or min(ax, bx) >= right or \
                    max(ay, by) <= top or min(ay, by) >= bottom, (source, to, name)


def test_a_change_without_a_place_is_not_left_out(picture, monkeypatch):
    monkeypatch.delitem(picture.ROUTES, next(iter(picture.ROUTES)))
    with pytest.raises(ValueError, match="arrows and their places differ"):
        picture.draw()


def test_a_task_advances_as_the_picture_says():
    for one, other in itertools.product(Progress, repeat=2):
        task = Task(1, Job.ATTACH, ("00000200.1",), 0x100, progress=one)
        if (one, other) in ADVANCES:
            assert (task.advanced(other, "so").progress, task.advanced(other, "so").said) == (
                other, "so")
        else:
            with pytest.raises(ValueError, match=f"^task 1 is {one}, and would be {other}$"):
                task.advanced(other, "so")
    assert not any(one.ended for one, _ in ADVANCES)
