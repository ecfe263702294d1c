"""What a receiver makes of a frame, whatever its sessions are (docs/wire-format.md).

:func:`~.wire.parse` knows every frame type; a receiver acts upon some, and looks at no more of the
others than their header.
"""

from collections.abc import Collection

from dxpu.fabric.wire.format import DropCause
from dxpu.fabric.wire.frame_types import handled as handled_types

from .wire import Frame, FrameError, parse

__all__ = ["HANDLED", "SPLIT", "judge"]

#: Types that every proxy acts upon, and those of the split form.
HANDLED = handled_types(split=False)
SPLIT = tuple(kind for kind in handled_types(split=True) if kind not in HANDLED)


def judge(data: bytes, handled: Collection[int] = HANDLED) -> Frame | DropCause:
    """The frame in ``data``, or the cause under which it is dropped."""
    try:
        frame = parse(data)
    except FrameError as error:
        # Bodies of types that are not handled are not looked at.
        if error.cause > DropCause.FIELD and data[14] & 15 not in handled:
            return DropCause.UNHANDLED
        return error.cause
    return frame if frame.type in handled else DropCause.UNHANDLED
