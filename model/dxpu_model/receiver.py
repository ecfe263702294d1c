"""Verdict of a receiver on a frame, without regard to sessions (docs/reference/wire-format.md).

:func:`~.wire.parse` knows every frame type. A receiver handles some types, and examines only the
header of other types.
"""

from collections.abc import Collection

from dxpu.fabric.wire.format import DropCause
from dxpu.fabric.wire.frame_types import handled as handled_types

from .wire import Frame, FrameError, parse

__all__ = ["HANDLED", "SPLIT", "judge"]

#: Types that every proxy handles; types of the split form.
HANDLED = handled_types(split=False)
SPLIT = tuple(kind for kind in handled_types(split=True) if kind not in HANDLED)


def judge(data: bytes, handled: Collection[int] = HANDLED) -> Frame | DropCause:
    """The frame in ``data``, or the cause for which a receiver drops it."""
    try:
        frame = parse(data)
    except FrameError as error:
        # Bodies of unhandled types are not examined.
        if error.cause > DropCause.FIELD and data[14] & 15 not in handled:
            return DropCause.UNHANDLED
        return error.cause
    return frame if frame.type in handled else DropCause.UNHANDLED
