"""Instructions of the opening agent, and an assembler for them.

An instruction handles up to 16 words of 16 bits: with word n it reads word ``b + n`` of the
session's record, takes word ``a + n`` of its source, and does one thing with it.
"""

from typing import Any

from amaranth.lib import data, enum

from dxpu.microcode import Steps, number

__all__ = ["Check", "If", "Instruction", "Label", "Op", "Program", "Set", "Source", "State"]


class Op(enum.Enum, shape=4):
    """What is done with the word."""

    #: Written into the record; one of :attr:`Source.KEY` becomes a word of the slot's key.
    STORE = 0
    #: Compared with that of the record: ``differs``.
    COMPARE = 1
    #: Checked, as ``argument`` (:class:`Check`) says: ``differs``.
    CHECK = 2
    #: Authenticated; ``last``: the message ends with it.
    MAC = 3
    #: Becomes a word of the body that is sent.
    BODY = 4
    #: Kept, as word ``a`` of three, for :class:`~.types.Tell` and :attr:`Check.KEPT`; others are
    #: not.
    KEEP = 5
    #: It is the peer's tag, for :class:`~.types.Tell` and :class:`~.types.Say`.
    KEEP_TAG = 6
    #: No word: the program goes on elsewhere, ``if_`` this holds.
    JUMP = 7
    #: The same, and comes back with RETURN. One at a time.
    CALL = 8
    RETURN = 9
    #: The keeper is told ``argument`` (:class:`~.types.Told`).
    TELL = 10
    #: A frame is to be sent, of type ``argument``.
    SAY = 11
    #: A state of the agent is changed: ``argument`` (:class:`Set`).
    SET = 12
    #: A counter: number ``argument`` of ``protocol.COUNTERS``.
    COUNT = 13
    #: The agent waits for another call.
    END = 14


class Source(enum.Enum, shape=3):
    """Where the word is from."""

    #: Word ``a`` of the body that came.
    FRAME = 0
    #: The word of the record itself.
    RECORD = 1
    #: Word ``a`` of the fields that this end says.
    OWN = 2
    RANDOM = 3
    #: Of the result of the authentication.
    RESULT = 4
    #: Of the key that comes.
    KEY = 5
    #: ``a + n`` of :class:`Label`.
    LABEL = 6
    #: ``a`` of :class:`State`.
    STATE = 7


class State(enum.Enum, shape=2):
    """What the agent knows."""

    ZERO = 0
    #: The tag that this end offers.
    OFFER = 1
    #: The tag in the header that came.
    TAG = 2
    #: The time, and the slot.
    TIME = 3


class Label(enum.Enum, shape=3):
    """Beginnings of authenticated messages."""

    #: Of all.
    DXF = 0
    PROOF = 1
    KNOCK = 2
    NUMBERS = 3
    #: Four words: bytes 14 to 20 of the header, and the stream.
    HEAD = 4


class Check(enum.Enum, shape=2):
    """When the word is wrong."""

    #: It is not 0.
    ZERO = 0
    #: It is 0.
    SOME = 1
    #: It is not the same one of those kept.
    KEPT = 2


class If(enum.Enum, shape=4):
    """When a jump is made. Some look at the word ``b`` of the record."""

    ALWAYS = 0
    #: A comparison or a check since the last such question failed.
    DIFFERS = 1
    #: The slot has a key.
    KEY = 2
    #: It is slot 1.
    SLOT1 = 3
    #: The word is the tag that this end offers.
    OFFERED = 4
    #: The word is a time just now: too early for another offer; to offer it again.
    YOUNG = 5
    SAID = 6
    #: Its slot is that of the key that is used.
    SAME = 7
    #: This end sends HELLO_DONE.
    CONFIRMS = 8
    #: There is no random word.
    DRY = 9
    #: The keeper has no tag.
    REFUSED = 10
    #: There is another session with this peer.
    MORE = 11


class Set(enum.Enum, shape=4):
    """What is set. The slot is that of the key that is used."""

    SLOT0 = 0
    SLOT1 = 1
    #: That of the time in the record.
    SLOT = 2
    #: The other one, if the peer has two; else the current one.
    TURN = 3
    #: The one for the key that comes; it has none now.
    VACANT = 4
    #: It has one; if it is the only one it is the current one.
    FILLED = 5
    #: It is the current one, if it has a key; if it was not, the other is empty now.
    CURRENT = 6
    #: Its key is used, eight words.
    KEY = 7
    #: Frames of this type are authenticated.
    HELLO = 8
    HELLO_ACK = 9
    HELLO_DONE = 10
    #: The first session with the peer of the key, and the next one.
    FIRST = 11
    NEXT = 12


class Instruction(data.Struct):
    """A word of the program. ``more`` words follow the first one."""

    op: Op
    source: Source
    a: 5
    b: 6
    more: 4
    last: 1
    #: The jump is made if the condition does not hold.
    unless: 1
    argument: 4
    target: 8


class Program(Steps):
    """A program that grows step by step."""

    def words(self, op: Op, source: Source, a: Any = 0, b: int = 0, count: int = 1, *,
              last: bool = False, argument: Any = 0) -> None:
        """``op`` with ``count`` words of ``source``."""
        self.step(op=op, source=source, a=number(a), b=b, more=count - 1, last=last,
                  argument=number(argument))

    def jump(self, target: str, *, if_: If = If.ALWAYS, unless: bool = False, b: int = 0) -> None:
        """Go on at ``target``."""
        self.step(target, op=Op.JUMP, argument=if_.value, unless=unless, b=b)

    def call(self, target: str) -> None:
        """Go on at ``target``, until RETURN."""
        self.step(target, op=Op.CALL)

    def do(self, op: Op, argument: Any = 0, *, b: int = 0, count: int = 1) -> None:
        """An instruction without words."""
        self.step(op=op, argument=number(argument), b=b, more=count - 1)

    def assembled(self) -> list[dict[str, Any]]:
        """The fields of all instructions."""
        return self.resolved(lambda place: {"target": place})
