"""The end of a session that opens it under the key of the pair.

Ref: docs/reference/keyed-sessions.md
"""

import secrets
from collections.abc import Callable
from dataclasses import replace

from dxpu.fabric.wire.format import SecurityMode
from dxpu.fabric.wire.frame_types import Body, FrameType
from dxpu_model.keyed import NONCE_BYTES, PARAMETER_BYTES, Ends, Opening, same
from dxpu_model.opening import Keys
from dxpu_model.wire import Frame, Hello

from .session import Phase, Say, Session, TagSource
from .timers import Timers

__all__ = ["KeyedSession"]


#: Bytes behind the fields of an opening frame: two nonces and a proof.
_BEHIND = Body.KEYED.size - Body.HELLO.size


def _fields(hello: Hello) -> bytes:
    return hello.pack(0, 0)[:PARAMETER_BYTES]


class KeyedSession(Session):
    """A :class:`~.session.Session` of security mode 1: nobody opens it who has not the key.

    An attempt begins anew after five HELLOs, with the other key while there are two. Until a frame
    of the peer has confirmed the session, nothing is sent in it but HELLO_DONE.

    Parameters
    ----------
    timers, tags, boot, now
        Of :class:`~.session.Session`.
    ends : Ends
        The host opens.
    keys : Keys
        Those of the pair; the next key becomes the current one when a session was opened under it.
    draw : function
        Draws so many random bytes.
    """

    def __init__(self, timers: Timers, tags: TagSource, *, boot: int, now: float, ends: Ends,
                 keys: Keys, draw: Callable[[int], bytes] = secrets.token_bytes) -> None:
        super().__init__(timers, tags, boot=boot, now=now)
        self._ends, self._keys, self._draw = ends, keys, draw
        self._key, self._alternate = keys.current, False
        self._opener = bytes(NONCE_BYTES)
        self._done: Hello | None = None
        self._answer: Hello | None = None

    def tick(self, now: float) -> Say | None:
        if (self.phase is Phase.HELLO and now >= self._until and self._tries == self.POLLS):
            self.phase = Phase.QUIET  # another attempt
        return super().tick(now)

    def _attempt(self) -> None:
        self._key = self._keys.current
        if self._keys.following is not None and self._alternate:
            self._key = self._keys.following
        self._alternate = not self._alternate
        self._offered, self._opener = self._tags.tag(), self._draw(NONCE_BYTES)
        self._nonce = int.from_bytes(self._opener[:4], "big")

    def hello(self) -> Hello:
        hello = replace(super().hello(), security_mode=SecurityMode.KEYED)
        return replace(hello, keyed=self._opener + bytes(NONCE_BYTES)
                       + self._ends.knock(self._key))

    def greeted(self, frame: Frame, now: float) -> bool:
        body, self.refusal = frame.body, "stale"
        if not (isinstance(body, Hello) and self._answers(frame, SecurityMode.KEYED)
                and len(body.keyed) == _BEHIND
                and (frame.dst_slot, frame.src_slot, frame.ar, frame.credit) == (0, 0, False, None)
                and body.keyed[:NONCE_BYTES] == self._opener):
            return False
        hello, answerer = self.hello(), body.keyed[NONCE_BYTES:2 * NONCE_BYTES]
        opening = Opening(self._ends, _fields(hello), _fields(body), self._opener, answerer)
        if not same(body.keyed[2 * NONCE_BYTES:], opening.proof(self._key, FrameType.HELLO_ACK)):
            self.refusal = "proof"
            return False
        self.first = opening.first_numbers(self._key)
        self._answer = body
        self._done = replace(
            hello, tag_echoed=body.tag_offered, done=True, keyed=self._opener + answerer
            + opening.proof(self._key, FrameType.HELLO_DONE))
        self._begins(body, now)
        return True

    def repeats(self, frame: Frame) -> bool:
        return (self.phase is Phase.CONFIRM and frame.type == FrameType.HELLO_ACK
                and frame.tag == self.rx_tag and frame.body == self._answer)

    def confirmation(self) -> Hello | None:
        return self._done

    def heard(self, now: float) -> bool:
        opens = super().heard(now)
        if opens:
            self._keys.made_current(self._key)
        return opens
