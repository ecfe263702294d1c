"""Instructions of the agent of management, and an assembler for them.

An instruction handles up to 16 words of 32 bits, or as many as the message has that is under way:
with word n it takes word ``a + n`` of its source, and does one thing with it, some with word
``b + n`` of a second bank.
"""

from typing import Any

from amaranth.lib import data, enum

from dxpu.microcode import Steps, number

__all__ = ["Check", "Count", "Do", "If", "Instruction", "Load", "Op", "Part", "Program", "Source",
           "State"]


class Op(enum.Enum, shape=4):
    """What is done with the word."""

    #: Written to the second bank.
    STORE = 0
    #: Compared with that of the second bank: ``differs``. ``argument`` 1: its first two bytes only.
    #: ``last``: it is a word of a tag (:class:`~.verdict.Verdict`).
    COMPARE = 1
    #: Checked, as ``argument`` (:class:`Check`) says: ``differs``.
    CHECK = 2
    #: Kept, for :attr:`State.TURNED`, :attr:`State.NEXT`, :attr:`Source.MIXED` and questions.
    KEEP = 3
    #: Authenticated under the node's key; ``last``: the message ends with so many bytes of it as
    #: ``argument`` says, 0 for 4.
    MAC = 4
    #: Associated data of the cipher; ``last``.
    ASSOCIATED = 5
    #: Encrypted or decrypted; the result is written to the second bank.
    CRYPT = 6
    #: A part of a body, for its CRC-32C.
    BODY = 7
    #: A part of a header, for HCRC. ``argument``: how many bytes, 0 for 4.
    HEADER = 8
    #: Becomes word ``b + n`` of the frame that is sent, and a part of its CRCs.
    OUT = 9
    #: A state of the agent: ``argument`` (:class:`Load`).
    LOAD = 10
    #: No word: the program goes on elsewhere, if ``argument`` (:class:`If`) holds.
    JUMP = 11
    #: The same, and comes back with RETURN. One at a time.
    CALL = 12
    RETURN = 13
    #: Something else: ``argument`` (:class:`Do`).
    DO = 14
    #: A counter: number ``argument`` of ``protocol.COUNTERS``.
    COUNT = 15


class Part(enum.Enum, shape=2):
    """A bank of the store."""

    #: Of the manager that it is about.
    RECORD = 0
    #: The frame that came.
    CAME = 1
    #: The frame that is sent.
    OUT = 2
    GLOBAL = 3


class Source(enum.Enum, shape=4):
    """Where the word is from."""

    RECORD = 0
    CAME = 1
    OUT = 2
    GLOBAL = 3
    #: The last two bytes of the word that is kept, and the first two of one of GLOBAL.
    MIXED = 4
    RANDOM = 5
    #: Of the authentication.
    RESULT = 6
    #: Of the cipher.
    TAG = 7
    #: The event that is due.
    EVENT = 8
    #: Of the key of the association.
    KEY = 9
    #: Of what the node says of itself.
    IDENTITY = 10
    #: ``a`` of :class:`State`.
    STATE = 11


class State(enum.Enum, shape=5):
    """What the agent knows, as bytes of frames."""

    ZERO = 0
    ONE = 1
    #: The next number behind the one that is kept.
    NEXT = 2
    #: The nodes that are kept, the other way round.
    TURNED = 3
    #: EtherType, version and type; the last two again, for HCRC; the same, behind the length of
    #: the associated data.
    ETHERNET = 4
    TYPE = 5
    LENGTH = 6
    #: Kind, manager number and length of the frame that is sent.
    HEAD = 7
    #: Manager number, a byte.
    MANAGER = 8
    LABEL_KNOCK = 9
    LABEL_ASSOCIATION = 10
    #: CRCs.
    HCRC = 11
    CRC = 12
    TIME = 13
    #: How many words the message has.
    SIZE = 14
    #: The path on which the frame came, as in a header.
    PATH = 15
    #: The node's MAC address, its first word; the rest is the next one.
    MAC = 16
    #: Addresses of an announcement, three words: to all, of the node.
    TO_ALL = 18
    #: The nodes of an announcement, and its path.
    OWN = 21
    OWN_PATH = 22


class Check(enum.Enum, shape=2):
    """Which bits must be 0."""

    ALL = 0
    #: The last byte.
    LAST = 1
    #: The first two.
    FIRST = 2
    #: All but the path.
    PATH = 3


class Load(enum.Enum, shape=2):
    """What the word is."""

    #: Kind, manager number and length of the frame that came.
    HEAD = 0
    #: Of the key of the association.
    KEY = 1
    #: The counter, for the cipher.
    COUNTER = 2
    SIZE = 3


class If(enum.Enum, shape=4):
    """When a jump is made."""

    ALWAYS = 0
    #: A comparison or a check since the last such question failed.
    DIFFERS = 1
    #: The nodes that are kept: to our number; to FFFh; from the manager.
    OURS = 2
    ANYBODY = 3
    FROM_MANAGER = 4
    #: The frame that came has the length that it says, and such a manager number.
    FORM = 5
    #: Its kind is ``b``.
    KIND = 6
    #: Its message has no words.
    EMPTY = 7
    #: There is an association.
    OPEN = 8
    #: It is made by this request.
    FRESH = 9
    #: Both CRCs are those of the frame.
    INTACT = 10
    #: Word ``b`` of the second bank is a time just now.
    YOUNG = 11
    #: There is no random word.
    DRY = 12
    #: An event waits for this manager.
    TOLD = 13
    #: This is not the last manager number.
    MORE = 14


class Do(enum.Enum, shape=4):
    """What is done without words."""

    END = 0
    #: CRCs begin.
    BEGIN = 1
    #: The frame is sent.
    SAY = 2
    #: The kind of the frame that is sent is ``b``; but of an answer it is known how long it is.
    KIND = 3
    #: The announcement was sent.
    ANNOUNCED = 4
    #: The cipher begins: with what came; with what is sent.
    UNSEAL = 6
    SEAL = 7
    #: The operations of the request are done.
    RUN = 8
    #: The key is that of the association that there is; of another one.
    KNOWN = 9
    FRESH = 10
    #: There is an association.
    OPEN = 11
    #: The event was sent; was acknowledged.
    SENT = 12
    HEARD = 13
    #: The next manager number, behind the last one the first.
    NEXT = 14
    #: The agent works from now on.
    READY = 15


class Count(enum.Enum, shape=1):
    """How many words an instruction handles."""

    #: ``more`` and one.
    FIXED = 0
    #: As many as the message has, which may be none.
    SIZE = 1


class Instruction(data.Struct):
    """A word of the program. ``target`` of jumps is in ``a`` and ``more``."""

    op: Op
    source: Source
    a: 7
    #: The second bank.
    to: Part
    b: 7
    more: 4
    count: Count
    #: The jump is made if the condition does not hold; the message ends with the last word.
    last: 1
    #: As many words as the message has are added to ``a``; to ``b``.
    a_behind: 1
    b_behind: 1
    argument: 4


class Program(Steps):
    """A program that grows step by step."""

    def words(self, op: Op, source: Source, a: Any = 0, to: Part = Part.RECORD, b: int = 0,
              count: int | Count = 1, *, last: bool = False, a_behind: bool = False,
              b_behind: bool = False, argument: Any = 0) -> None:
        """``op`` with ``count`` words of ``source``."""
        fixed = isinstance(count, int)
        self.step(op=op, source=source, a=number(a), to=to, b=b, more=count - 1 if fixed else 0,
                  count=Count.FIXED if fixed else Count.SIZE, last=last, a_behind=a_behind,
                  b_behind=b_behind, argument=number(argument))

    def jump(self, target: str, *, if_: If = If.ALWAYS, unless: bool = False,
             to: Part = Part.RECORD, b: int = 0) -> None:
        """Go on at ``target``."""
        self.step(target, op=Op.JUMP, argument=if_.value, last=unless, to=to, b=b)

    def call(self, target: str) -> None:
        """Go on at ``target``, until RETURN."""
        self.step(target, op=Op.CALL)

    def do(self, what: Do, b: int = 0) -> None:
        """An instruction without words."""
        self.step(op=Op.DO, argument=what.value, b=b)

    def returns(self) -> None:
        """Go on behind the call."""
        self.step(op=Op.RETURN)

    def count(self, which: int) -> None:
        """Count an event."""
        self.step(op=Op.COUNT, argument=which)

    def assembled(self) -> list[dict[str, Any]]:
        """The fields of all instructions."""
        return self.resolved(lambda place: {"a": place & 0x7F, "more": place >> 7})
