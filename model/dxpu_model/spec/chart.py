"""Message charts of a session's fault: two time lines, and an arrow for each frame."""

from xml.sax.saxutils import escape

from .search import search
from .keyed import Keyed
from .session import BOX, HOST, NAMES, Sessions

__all__ = ["chart"]

_LINES = {HOST: 330, BOX: 630}  # x of the two time lines
_STEP, _TOP = 30, 60


def chart(model: Sessions | Keyed) -> str:
    """SVG of the shortest way into the fault of ``model``.

    An arrow begins where its frame was first sent and ends where the frame was taken, so a long
    arrow is an old frame. A frame without an end is not taken in this trace. A frame that a
    stranger made up or put together stands between the lines.
    """
    result = search(model)
    if result.fault is None:
        raise ValueError("model must have a fault")
    state, sent, parts = model.initial(), {}, []
    for row, step in enumerate(result.trace):
        y = _TOP + _STEP * row
        who = step.split(":")[0].split()[0]
        frame, after = _step(model, state, step)
        for new in model.wire.frames(after.wire & ~state.wire):
            sent[new] = y
        if who in NAMES:
            end = NAMES.index(who)
            if frame is not None:
                parts.append(_arrow(_LINES[1 - end], sent[frame], _LINES[end], y))
            parts.append(_note(end, y, step.removeprefix(who).lstrip(": ")))
        else:
            parts.append(f'<text x="480" y="{y + 4}" text-anchor="middle" fill="#b00020" '
                         'stroke="white" stroke-width="4" paint-order="stroke">'
                         f'{escape(step)}</text>')
        state = after
    bottom = _TOP + _STEP * len(result.trace)
    lines = [f'<line x1="{x}" y1="35" x2="{x}" y2="{bottom}" stroke="#888"/>'
             f'<text x="{x}" y="25" text-anchor="middle" font-weight="bold">{NAMES[end]}</text>'
             for end, x in _LINES.items()]
    fault = (f'<text x="480" y="{bottom + 20}" text-anchor="middle" fill="#b00020" '
             f'font-weight="bold">{escape(result.fault)}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="960" height="{bottom + 40}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#1a4f8b"/></marker></defs>',
        *lines, *parts, fault, "</svg>"]) + "\n"


def _step(model, state, step):
    """The frame taken by the step named ``step``, if any, and the state after the step."""
    for frame in model.wire.frames(state.wire):
        for name, after in model.take(state, *frame):
            if name == step:
                return frame, after
    return None, next(after for name, after in model.actions(state) if name == step)


def _arrow(x1, y1, x2, y2):
    return (f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#1a4f8b" stroke-width="1.5" '
            'marker-end="url(#head)"/>')


def _note(end, y, text):
    x, anchor = (_LINES[end] - 10, "end") if end == HOST else (_LINES[end] + 10, "start")
    return f'<text x="{x}" y="{y + 4}" text-anchor="{anchor}">{escape(text)}</text>'
