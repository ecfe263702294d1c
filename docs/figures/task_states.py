"""The picture of a task's progress: ``python docs/figures/task_states.py > task_states.svg``.

What is drawn is ``dxpu_manager.records.ADVANCES``; here is only where.
"""

from architecture import wire
from states import figure, state

from dxpu_manager import Progress
from dxpu_manager.records import ADVANCES

WIDTH, HEIGHT = 900, 220
#: Corner and fill of each state.
STATES = {
    Progress.RUNNING: (20, 90, "pcie"), Progress.DONE: (760, 20, "gpu"),
    Progress.ROLLING_BACK: (400, 160, "fabric"), Progress.FAILED: (760, 90, "mac"),
}
#: For each arrow its corners, and where its cause is written.
ROUTES = {
    (Progress.RUNNING, Progress.DONE): ([(80, 90), (80, 40), (760, 40)], (420, 32)),
    (Progress.RUNNING, Progress.FAILED): ([(140, 110), (760, 110)], (450, 102)),
    (Progress.RUNNING, Progress.ROLLING_BACK): ([(80, 130), (80, 180), (400, 180)], (240, 172)),
    (Progress.ROLLING_BACK, Progress.FAILED): ([(520, 180), (820, 180), (820, 130)], (670, 172)),
}


def draw():
    """The SVG as text."""
    if ADVANCES.keys() != ROUTES.keys():
        raise ValueError(f"arrows and their places differ: {ADVANCES.keys() ^ ROUTES.keys()}")
    return figure(WIDTH, HEIGHT, "Progress of a task", [
        *(wire(*corners, label=ADVANCES[arrow], at=place, both=False)
          for arrow, (corners, place) in ROUTES.items()),
        *(state(x, y, str(one), fill) for one, (x, y, fill) in STATES.items())])


if __name__ == "__main__":
    print(draw(), end="")
