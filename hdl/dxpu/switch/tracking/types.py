"""Inputs and outputs of the completion tracker.

Ref: PCIe Base 5.0, 2.2.9 (completion headers), 2.3.1.1 (byte count and lower address).
"""

from amaranth import *
from amaranth.lib import data, enum

from dxpu.tlp.types import CompletionRequest, TlpInfo

__all__ = ["GRANULE", "TIME_BITS", "TIME_UNIT", "DropCause", "Expired", "RoundTrip",
           "TrackedAnswer", "TrackedCompletion", "TrackedRequest", "TrackerVerdict",
           "request_kind", "tracked_completion", "tracked_request"]


#: Cycles of a granule, by default: the unit of deadlines.
GRANULE = 4096
#: Cycles of the unit in which round trips are measured then, and bits of one.
TIME_UNIT, TIME_BITS = GRANULE // 256, 21


class DropCause(enum.Enum, shape=unsigned(2)):
    """Cause of the drop of a completion. Of several causes, the first in this order is reported."""

    NONE = 0        #: the completion passes
    FENCED = 1      #: the slot is fenced
    UNEXPECTED = 2  #: the slot has no such open request: late, duplicate, made up
    STALE = 3       #: the request belongs to another generation of the slot's row


class TrackedRequest(data.Struct):
    """A non-posted request on its way to a slot, in natural (host) order."""

    slot: 5
    generation: 16       #: generation of the slot's row
    dead: 1              #: the slot was fenced before the request came: answer at once
    requester_id: 16
    tag: 10
    tc: 3
    attr: 3
    byte_count: 12       #: Byte Count of the first completion; 0 is 4096
    lower_address: 7     #: Lower Address of the first completion
    locked: 1            #: MRdLk: answered with CplLk
    splits: 1            #: memory read: may have several completions
    returns: 1           #: a successful completion has data


class TrackedCompletion(data.Struct):
    """A completion that came from a slot, in natural (host) order."""

    slot: 5
    generation: 16       #: generation of the slot's row when the frame was accepted
    requester_id: 16
    tag: 10
    status: 3            #: any code
    byte_count: 12       #: 0 is 4096
    lower_address: 7
    bcm: 1               #: Byte Count Modified: the byte count covers this completion only
    dwords: 11           #: dwords of payload


class TrackerVerdict(data.Struct):
    """Verdict on a completion."""

    accept: 1            #: the completion passes unchanged; otherwise it is dropped
    cause: DropCause


class TrackedAnswer(data.Struct):
    """A completion made by the tracker in place of a fenced slot."""

    slot: 5              #: slot that no longer answers
    completion: CompletionRequest


class Expired(data.Struct):
    """A request has been open for too long."""

    strobe: 1
    slot: 5


class RoundTrip(data.Struct):
    """A request has got its last completion from its slot.

    Members
    -------
    strobe : 1
    slot : 5
    time : 21
        From when the tracker took the request until it judged the completion, in its units.
    """

    strobe: 1
    slot: 5
    time: TIME_BITS


def request_kind(info):
    """``splits`` and ``returns`` of a non-posted request, from its :class:`TlpInfo` view."""
    return info.is_memory & ~info.is_atomic, info.is_atomic | ~info.is_write


def tracked_request(completion, splits, returns, *, slot):
    """Tracked fields of a non-posted request, as a :class:`TrackedRequest` view.

    Wires only. Generation and ``dead`` are 0.

    Parameters
    ----------
    completion : :class:`~dxpu.tlp.types.CompletionRequest` view
        Result of :func:`~dxpu.tlp.completion.completion_for`, with any status and completer.
    splits, returns : value of 1 bit
        Result of :func:`request_kind`.
    slot : value of 5 bits
        Slot to which the request goes.
    """
    c = completion
    # In the order of the members of TrackedRequest.
    return TrackedRequest(Cat(
        _fit(slot, 5), C(0, 16), C(0, 1), c.requester_id, c.tag, c.tc, c.attr, c.byte_count,
        c.lower_address, c.locked, splits, returns))


def tracked_completion(info, *, slot, generation):
    """Tracked fields of a completion, as a :class:`TrackedCompletion` view. Wires only.

    Parameters
    ----------
    info : :class:`~dxpu.tlp.types.TlpInfo` view
    slot : value of 5 bits
        Slot from which the completion came.
    generation : value of 16 bits
    """
    if getattr(info, "shape", lambda: None)() is not TlpInfo:
        raise TypeError(f"info must be a view of TlpInfo, not {info!r}")
    # In the order of the members of TrackedCompletion.
    return TrackedCompletion(Cat(
        _fit(slot, 5), _fit(generation, 16), info.target_id, info.tag, info.status,
        info.byte_count, info.lower_address, info.bcm, info.payload_dwords))


def _fit(value, width):
    """``value`` as exactly ``width`` bits."""
    return Cat(Value.cast(value), C(0, width))[:width]
