"""The carrier's end of the socket: messages with TLPs, link state and reset.

Ref: docs/reference/linux-carrier.md
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["VERSION", "Edge", "EdgeClosed", "EdgeError", "Kind", "check_tlp", "message"]

VERSION = 1
_HEADER = struct.Struct("<IB3x")
_HELLO = struct.Struct("<4sH2x")
_MAGIC = b"TLPS"
#: Largest TLP: a header of four dwords, and 4096 bytes of data.
_LARGEST = 16 + 4096


class EdgeError(Exception):
    """The simulation broke a rule of the socket; the message names the rule."""


class EdgeClosed(EdgeError):
    """The simulation closed the socket."""


class Kind(IntEnum):
    """Kinds of messages."""

    HELLO = 1
    TLP = 2
    LINK = 3
    RESET = 4


def message(kind: Kind, payload: bytes = b"") -> bytes:
    """A whole message."""
    return _HEADER.pack(len(payload), kind) + payload


def check_tlp(raw: bytes) -> None:
    """Raise :exc:`EdgeError` unless ``raw`` is a TLP as long as its header says, without prefix and
    digest (PCIe Base 5.0, 2.2.1)."""
    begin = raw[:16].hex(" ")
    if len(raw) < 12 or len(raw) % 4:
        raise EdgeError(f"a TLP has at least 3 whole dwords, not {len(raw)} bytes: {begin}")
    if raw[0] >> 7:
        raise EdgeError(f"TLP prefixes cannot be carried: {begin}")
    if raw[2] & 0x80:
        raise EdgeError(f"TLP digests cannot be carried: {begin}")
    header = 16 if raw[0] & 0x20 else 12
    data = (((raw[2] & 3) << 8 | raw[3]) or 1024) * 4 if raw[0] & 0x40 else 0
    if len(raw) != header + data:
        raise EdgeError(f"a TLP of {len(raw)} bytes has a header for {header + data}: {begin}")


@dataclass(frozen=True)
class _Arrived:
    """A TLP from below, as a root port takes it."""

    raw: bytes
    discard: bool = False


class Edge:
    """A connection to a simulation: the link below a
    :class:`~dxpu_sim.linux.carrier.root_port.RootPort`.

    Parameters
    ----------
    reader, writer : streams of asyncio
        Of the accepted connection.

    Attributes
    ----------
    received : list of functions
        Called with each TLP that arrives while the link is up.
    changed : list of functions
        Called with 1 when the link has come up, and with 0 when it has gone down.
    up : bool
        The simulation says that its link is up, and has answered the last reset.
    reset_unanswered : bool
        A reset was sent, and the simulation has not said since that the link is down.
    idle : bool
        Nothing that was sent is on its way; always true, as the socket keeps the order.
    tlps_sent, tlps_received, tlps_dropped : int
        Totals; TLPs from below are dropped while the link is down.
    """

    idle = True

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        self.received: list[Callable] = []
        self.changed: list[Callable[[bool], None]] = []
        self.up = False
        self.tlps_sent = self.tlps_received = self.tlps_dropped = 0
        self._in_reset = False
        self.reset_unanswered = False

    async def _next(self):
        try:
            size, number = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
            if size > _LARGEST:
                raise EdgeError(f"a message has at most {_LARGEST} bytes behind its header, "
                                f"not {size}")
            payload = await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise EdgeClosed("the simulation closed the socket" + (
                " within a message" if error.partial else "")) from None
        except ConnectionError:
            raise EdgeClosed("the simulation ended") from None
        try:
            return Kind(number), payload
        except ValueError:
            raise EdgeError(f"there is no kind {number} of messages") from None

    async def greet(self) -> None:
        """Exchange the greetings; raises :exc:`EdgeError` for a wrong one."""
        self._writer.write(message(Kind.HELLO, _HELLO.pack(_MAGIC, VERSION)))
        kind, payload = await self._next()
        if kind is not Kind.HELLO or len(payload) != _HELLO.size:
            raise EdgeError(f"the first message must be HELLO with {_HELLO.size} bytes, not "
                            f"{kind.name} with {len(payload)}")
        magic, version = _HELLO.unpack(payload)
        if (magic, version) != (_MAGIC, VERSION):
            raise EdgeError(f"HELLO must say {_MAGIC!r} and version {VERSION}, not {magic!r} and "
                            f"{version}")

    async def run(self) -> None:
        """Take messages until the connection ends, in :exc:`EdgeClosed` or another
        :exc:`EdgeError`."""
        while True:
            kind, payload = await self._next()
            if kind is Kind.TLP:
                check_tlp(payload)
                if self.up:
                    self.tlps_received += 1
                    for callback in self.received:
                        callback(_Arrived(payload))
                else:
                    self.tlps_dropped += 1
            elif kind is Kind.LINK and payload in (b"\0", b"\1"):
                self._link_is(payload == b"\1")
            else:
                raise EdgeError(f"{kind.name} with {payload[:16].hex(' ') or 'nothing'} is no "
                                "message to the carrier")

    def _link_is(self, up):
        if not up:
            self.reset_unanswered = False
        elif self.reset_unanswered:
            return  # sent before the simulation knew of the reset
        self._set(up and not self._in_reset)

    def _set(self, up):
        if up != self.up:
            self.up = up
            for callback in self.changed:
                callback(up)

    def link(self, up: bool) -> None:
        """Begin a hot reset (``up`` false), or end it."""
        if up == self._in_reset:
            self._in_reset = not up
            self.reset_unanswered |= not up
            if not up:
                self._set(False)
            self._writer.write(message(Kind.RESET, bytes([not up])))

    async def send(self, raw: bytes) -> None:
        """Send a TLP; dropped while the link is down."""
        if self.up:
            self.tlps_sent += 1
            self._writer.write(message(Kind.TLP, raw))

    def close(self) -> None:
        """Close the connection, which ends the simulation."""
        self._writer.close()
