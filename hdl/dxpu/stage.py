"""Events on the way of TLPs through a proxy, and how full its queues are, for measurements."""

from dataclasses import dataclass, field

from amaranth import *

__all__ = ["NOTE_BITS", "Fill", "Stage", "counted_fill", "header_stage", "tlp_stage"]

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


@dataclass(frozen=True)
class Fill:
    """How full a queue is.

    Parameters
    ----------
    level : Value
        What is in the queue; ``room`` minus that, if ``free``.
    room : int
        Most that can be in it.
    text : str
        What is counted, as a sentence.
    free : bool
    leaves : Value, optional
        ``level`` is no number, but pulses: as many things enter as bits are set, and as many leave
        as bits of ``leaves`` are.
    """

    level: Value
    room: int
    text: str
    free: bool = False
    leaves: Value | None = None


def counted_fill(enters, leaves, room: int, text: str) -> Fill:
    """A :class:`Fill` of which only what enters and leaves is known, as pulses."""
    return Fill(Value.cast(enters), room, text, leaves=Value.cast(leaves))


def tlp_stage(stream) -> Stage:
    """The first beat of each TLP without prefixes leaves the packet stream ``stream``."""
    beat = stream.payload
    return Stage(stream.valid & stream.ready & beat.first, beat.data[:NOTE_BITS])


def header_stage(stream, info) -> Stage:
    """Each header leaves ``stream``, whose payload has it as ``info``, a
    :class:`~dxpu.tlp.types.TlpInfo`."""
    return Stage(stream.valid & stream.ready, Cat(info.type, info.fmt))
