"""The picture of a GPU's states: ``python docs/figures/gpu_states.py > gpu_states.svg``.

What is drawn is ``dxpu_manager.TRANSITIONS``; here is only where.
"""

from textwrap import wrap

from architecture import text, wire
from states import figure, group, state

from dxpu_manager import TRANSITIONS, State

WIDTH, HEIGHT = 1250, 500
GREY = "#52606d"
#: Corner and fill of each state.
STATES = {
    State.ABSENT: (20, 170, "plain"), State.QUARANTINED: (240, 170, "fabric"),
    State.SPARE: (580, 100, "gpu"), State.FREE: (580, 170, "gpu"),
    State.RESERVED: (580, 240, "gpu"), State.ATTACHING: (890, 170, "pcie"),
    State.ATTACHED: (1110, 170, "pcie"), State.DRAINING: (890, 350, "pcie"),
    State.FAILED: (240, 410, "mac"),
}
#: States that many causes leave alike: an arrow from the frame around them is one from each.
UNUSED = frozenset({State.FREE, State.SPARE, State.RESERVED})
FRAME = (490, 80, 315, 220)
#: For each arrow its corners, where its causes are written, and on which side of that place.
ROUTES = {
    (State.ABSENT, State.QUARANTINED): ([(140, 180), (240, 180)], (190, 172), "middle"),
    (State.QUARANTINED, State.ABSENT): ([(240, 200), (140, 200)], (190, 222), "middle"),
    (State.QUARANTINED, State.FREE): ([(360, 190), (580, 190)], (425, 182), "middle"),
    (UNUSED, State.QUARANTINED): ([(490, 110), (300, 110), (300, 170)], (310, 126), "start"),
    (UNUSED, State.ABSENT): ([(640, 80), (640, 50), (80, 50), (80, 170)], (360, 42), "middle"),
    (UNUSED, State.ATTACHING): ([(805, 180), (890, 180)], (845, 172), "middle"),
    (State.FREE, State.SPARE): ([(600, 170), (600, 140)], (592, 152), "end"),
    (State.SPARE, State.FREE): ([(680, 140), (680, 170)], (688, 152), "start"),
    (State.FREE, State.RESERVED): ([(600, 210), (600, 240)], (592, 229), "end"),
    (State.RESERVED, State.FREE): ([(680, 240), (680, 210)], (688, 229), "start"),
    (State.ATTACHING, State.ATTACHED): ([(1010, 180), (1110, 180)], (1060, 172), "middle"),
    (State.ATTACHED, State.ATTACHING): ([(1110, 200), (1010, 200)], (1060, 226), "middle"),
    (State.ATTACHED, State.DRAINING): ([(1170, 210), (1170, 370), (1010, 370)], (1162, 300), "end"),
    (State.ATTACHING, State.DRAINING): ([(950, 210), (950, 350)], (958, 280), "start"),
    (State.DRAINING, State.FREE): ([(890, 360), (845, 360), (845, 200), (700, 200)], (837, 330),
                                   "end"),
    (State.DRAINING, State.QUARANTINED): ([(890, 378), (345, 378), (345, 210)], (600, 370),
                                          "middle"),
    (State.DRAINING, State.FAILED): ([(930, 390), (930, 430), (360, 430)], (600, 422), "middle"),
    (State.DRAINING, State.ABSENT): ([(970, 390), (970, 480), (55, 480), (55, 210)], (600, 472),
                                     "middle"),
    (State.FAILED, State.QUARANTINED): ([(280, 410), (280, 210)], (272, 300), "end"),
    (State.FAILED, State.ABSENT): ([(240, 430), (105, 430), (105, 210)], (172, 404), "middle"),
}


def arrows():
    """Causes of each arrow, in order; those that all unused states have leave their frame."""
    found = {}
    for cause, (origins, to) in TRANSITIONS.items():
        together = origins >= UNUSED
        sources = [UNUSED, *(origins - UNUSED)] if together else origins
        for source in sources:
            found.setdefault((source, to), []).append(str(cause))
    return found


def draw():
    """The SVG as text."""
    causes = arrows()
    if causes.keys() != ROUTES.keys():
        raise ValueError(f"arrows and their places differ: {causes.keys() ^ ROUTES.keys()}")
    parts = [group(*FRAME)]
    for arrow, (corners, (x, y), side) in ROUTES.items():
        parts.append(wire(*corners, both=False))
        lines = [line for cause in causes[arrow] for line in wrap(cause, 24)]
        parts += [text(x, y + 14 * n, line, size=11, anchor=side, fill=GREY)
                  for n, line in enumerate(lines)]
    parts += [state(x, y, str(one), fill) for one, (x, y, fill) in STATES.items()]
    return figure(WIDTH, HEIGHT, "States of a GPU, and what changes them", parts)


if __name__ == "__main__":
    print(draw(), end="")
