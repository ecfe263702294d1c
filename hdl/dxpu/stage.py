"""Events on the way of TLPs through a proxy, for measurements."""

from dataclasses import dataclass, field

from amaranth import *

__all__ = ["NOTE_BITS", "Stage", "header_stage", "tlp_stage"]

#: Bits of a note.
NOTE_BITS = 8


@dataclass(frozen=True)
class Stage:
    """An event on the way of a TLP or a frame.

    Parameters
    ----------
    strobe : 1
        A TLP or a frame is so far.
    note : 8
        Valid with ``strobe``. Of a TLP: Fmt and Type, as in its first byte (PCIe Base 5.0, 2.2.1).
        Of a frame: 0, or the lower bits of the number of the node at its other end.
    rises : bool
        The event is in the first of several cycles in which ``strobe`` is 1.
    """

    strobe: Value
    note: Value = field(default_factory=lambda: Const(0, NOTE_BITS))
    rises: bool = False


def tlp_stage(stream) -> Stage:
    """The first beat of each TLP without prefixes leaves the packet stream ``stream``."""
    beat = stream.payload
    return Stage(stream.valid & stream.ready & beat.first, beat.data[:NOTE_BITS])


def header_stage(stream, info) -> Stage:
    """Each header leaves ``stream``, whose payload has it as ``info``, a
    :class:`~dxpu.tlp.types.TlpInfo`."""
    return Stage(stream.valid & stream.ready, Cat(info.type, info.fmt))
