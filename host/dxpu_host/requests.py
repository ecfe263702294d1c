"""Requests to a slot, waiting for their completions.

Ref: PCI Express Base Specification 5.0, 2.2.9 (completions), 2.8 (completion timeout)
"""

from dataclasses import dataclass, field

from dxpu.tlp.types import Type
from dxpu_model.tlp import Tlp

from .errors import Aborted, HostError, Timeout, Unsupported
from .tlp import Status, completed_bytes, requested_bytes

__all__ = ["Request", "Requests", "Retry"]


class Retry(HostError):
    """Configuration Request Retry Status: the device is not ready yet."""


def _describe(tlp: Tlp) -> str:
    target = tlp.target_id
    if tlp.type in (Type.CONFIG_0, Type.CONFIG_1):
        return (f"{tlp.kind} of register {4 * tlp.register:#x} of {target >> 8:02x}:"
                f"{target >> 3 & 31:02x}.{target & 7:x}")
    return f"{tlp.kind} of {4 * tlp.length} bytes at {tlp.address:#x}"


@dataclass
class Request:
    """A request sent, or waiting to be sent."""

    tlp: Tlp
    deadline: float
    #: Data so far; of a memory read in the order of addresses.
    data: bytearray = field(default_factory=bytearray)
    done: bool = False
    error: HostError | None = None
    #: No caller waits for the request any more, but its tag is not free yet.
    abandoned: bool = False

    def result(self) -> bytes:
        """The data of a finished request.

        Raises
        ------
        HostError
            Reason why there is no data.
        """
        if self.error is not None:
            raise self.error
        return bytes(self.data)

    def end(self, error: HostError | None = None) -> None:
        """Finish the request."""
        self.done, self.error = True, error


class Requests:
    """Open requests by tag.

    The tag of an abandoned request stays taken until its completion comes or the slot's life ends,
    so that a late completion never answers another request. Tags are given out in turn.
    """

    TAGS = 256

    def __init__(self) -> None:
        self._open: dict[int, Request] = {}
        self._next = 0

    @property
    def free(self) -> bool:
        """Whether a tag is free for another request."""
        return len(self._open) < self.TAGS

    def add(self, tlp: Tlp, deadline: float) -> Request:
        """Give ``tlp`` a tag; only while a tag is :attr:`free`."""
        while self._next in self._open:
            self._next = (self._next + 1) % self.TAGS
        tlp.tag, self._next = self._next, (self._next + 1) % self.TAGS
        request = self._open[tlp.tag] = Request(tlp, deadline)
        return request

    def complete(self, completion: Tlp) -> bool:
        """Handle a completion; returns False, and drops it, if it fits no open request."""
        request = self._open.get(completion.tag)
        if request is None or not self._fits(request, completion):
            return False
        error = self._error(request.tlp, completion)
        last = True
        if error is None and request.tlp.type == Type.MEMORY:
            part = completed_bytes(completion)
            request.data += part
            last = len(part) == completion.byte_count
        elif error is None:
            request.data += completion.payload
        if last:
            del self._open[completion.tag]
            if not request.abandoned:
                request.end(error)
        return True

    @staticmethod
    def _fits(request: Request, completion: Tlp) -> bool:
        """Whether a completion continues the request and carries the expected data.

        Only the requester may judge this (2.3.2); switches forward every completion with an open
        tag.
        """
        tlp = request.tlp
        if completion.requester_id != tlp.requester_id:
            return False
        if completion.status != Status.SC.value:
            return True
        wants = tlp.type == Type.MEMORY or not tlp.fmt & 2
        if bool(completion.payload) != wants:
            return False
        if tlp.type != Type.MEMORY:
            return len(completion.payload) in (0, 4)
        address, length = requested_bytes(tlp)
        here, left = address + len(request.data), length - len(request.data)
        return (completion.byte_count == left and completion.lower_address == here & 0x7F
                and len(completion.payload) <= (here & 3) + left + 3)

    @staticmethod
    def _error(tlp: Tlp, completion: Tlp) -> HostError | None:
        status = completion.status
        if status == Status.SC.value:
            return Aborted(f"{_describe(tlp)}: data came poisoned") if completion.ep else None
        if status == Status.CA.value:
            return Aborted(f"{_describe(tlp)} ended in Completer Abort")
        if status == Status.CRS.value and tlp.type in (Type.CONFIG_0, Type.CONFIG_1):
            return Retry(f"{_describe(tlp)}: the device is not ready")
        return Unsupported(f"{_describe(tlp)} ended in Unsupported Request")

    def expire(self, now: float) -> None:
        """Abandon requests that have waited for too long."""
        for request in self._open.values():
            if not request.abandoned and now >= request.deadline:
                request.abandoned = True
                request.end(Timeout(f"{_describe(request.tlp)}: no completion in time"))

    def fail(self, error: HostError) -> None:
        """End all requests, as the slot's life is over."""
        for request in self._open.values():
            if not request.abandoned:
                request.end(error)
        self._open.clear()

    def deadline(self) -> float | None:
        """Time of the next call of :meth:`expire`, if nothing comes before."""
        return min((request.deadline for request in self._open.values()
                    if not request.abandoned), default=None)
