"""What the opening agent is asked, and what it answers.

The first field of a structure is the least significant.
"""

from enum import IntEnum

from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crypto.cmac import MacUse

__all__ = ["BODY_WORDS", "BodyLook", "Call", "Called", "KeyWord", "KnockPort", "Record", "Say",
           "Tell", "Told"]

#: Words of 16 bits of the body of an opening frame, its CRC-32C included.
BODY_WORDS = 32


class Record(IntEnum):
    """Words of a session's record. All bytes are in the order of frames, the first one lowest."""

    #: Of the opener and of the answerer, four words each.
    NONCES = 0
    #: What this end says in its own frame behind the tags: ten words.
    FIELDS = 8
    #: The opener's tag, and that of the answerer; 0: none yet, or no more.
    OPENER_TAG = 18
    ANSWERER_TAG = 19
    #: Of the HELLO_ACK or HELLO_DONE that this end sends.
    PROOF = 20
    #: Of the HELLO_DONE that is awaited; the opener's: of the HELLO_ACK that came.
    AWAITED = 28
    #: Of the HELLO_DONE that opened the session.
    OPENED = 36
    #: Of a HELLO, under the key in slot 0, and in slot 1.
    KNOCK0 = 44
    KNOCK1 = 52
    #: CRC-32C of the body of the HELLO.
    CRC = 60
    #: When it was offered (15 bits), and the slot of the key; when that was said last.
    MADE = 62
    SAID = 63


class Called(enum.Enum, shape=3):
    """Why the agent is called."""

    #: Such a frame came; its body is in the buffer.
    HELLO = 0
    HELLO_ACK = 1
    HELLO_DONE = 2
    #: Such a frame is to be sent. The first HELLO with a tag begins an attempt.
    SEND_HELLO = 3
    SEND_HELLO_ACK = 4
    SEND_HELLO_DONE = 5
    #: A frame of the session that this end has opened came.
    HEARD = 6


class Call(data.Struct):
    """Something is to be done for ``session``.

    Members
    -------
    kind, session : :class:`Called`, 6
    peer : 12
        Its peer's node.
    tag : 16
        In the header of the frame that came.
    offered : 16
        Tag that this end offers; 0: none.
    confirms : 1
        This end has begun the session, and sends HELLO_DONE.
    boot, path : 16, 4
        What the peer says of itself in the frame that came; the path of the frame to be sent, or of
        an answer. Only passed on.
    """

    kind: Called
    session: 6
    peer: 12
    tag: 16
    offered: 16
    confirms: 1
    boot: 16
    path: 4


class Told(enum.Enum, shape=3):
    """What follows from a frame that came."""

    #: Another tag is needed to answer a HELLO.
    WANTS = 0
    #: Say what was said before: HELLO_ACK, or HELLO_DONE.
    AGAIN = 1
    #: There is a candidate: send its HELLO_ACK.
    OFFERS = 2
    #: The session begins.
    BEGINS = 3
    #: The peer has not heard that the session is open: acknowledge.
    REPEATS = 4


class Tell(data.Struct):
    """What a frame that came means for ``session``.

    Members
    -------
    kind, session : :class:`Told`, 6
    offered : 16
        Tag of this end for which it is so; 0 with REPEATS.
    theirs, seq, next : 16, 24, 24
        With BEGINS: tag for frames to the peer, number of our first one and of its first one.
    boot, path : 16, 4
        Of the :class:`Call`.
    """

    kind: Told
    session: 6
    offered: 16
    theirs: 16
    seq: 24
    next: 24
    boot: 16
    path: 4


class Say(data.Struct):
    """A frame is to be sent, with this tag in its header; its body is there."""

    type: 4
    session: 6
    path: 4
    tag: 16


class KeyWord(data.Struct):
    """A word of a key of ``peer``, the first of eight first.

    Members
    -------
    peer, node : 4, 12
        Number of the peer, and its node.
    following : 1
        The key is the next one; else the only one.
    data : 16
    """

    peer: 4
    node: 12
    following: 1
    data: 16


class BodyLook(wiring.Signature):
    """How a part looks at the body of a HELLO that the link has refused, where the engine keeps the
    bodies of opening frames. Only while no session is under way: the opening agent needs the same
    place.

    Members
    -------
    keep : Out(1)
        Strobe, with ``refused`` of the engine: the body of this frame is kept until the next one.
    looks : Out(1)
        The word is ``at``; else it is the one that the agent reads.
    at, word : Out(5), In(16)
        That word of the body that is kept, in the same cycle. The first byte is the lowest.
    """

    def __init__(self):
        super().__init__({"keep": Out(1), "looks": Out(1), "at": Out(5), "word": In(16)})


class KnockPort(wiring.Signature):
    """How a part finds out, before a box is set up, whether who sends a HELLO has the key; seen
    from that part.

    Members
    -------
    free : In(1)
        Nobody has given the box a node number. Else nothing may be kept of a frame.
    body_look : Out :class:`BodyLook`
    cmac : Out :class:`~dxpu.crypto.MacUse`
    """

    def __init__(self):
        super().__init__({"free": In(1), "body_look": Out(BodyLook()), "cmac": Out(MacUse())})
