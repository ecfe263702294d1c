"""The program of the agent of management: what a node does with each frame.

Ref: docs/reference/management.md
"""

from .format import FOLLOWS_MAX, IDENTITY_BYTES, Kind
from .program import Check, Count, Do, If, Load, Op, Part, Program, Source, State

__all__ = ["ANNOUNCE", "ANSWER", "ASKED", "BODY", "COUNTERS", "EVENT", "FRAME", "protocol"]

#: Names of the counters of COUNT.
COUNTERS = ("damaged", "knock", "early", "stale", "tag")

#: Where the program begins: at first; with a frame; with an event, or an announcement, that is due.
FRAME, EVENT, ANNOUNCE = 1, 2, 3

#: Words of a frame: MAC addresses, type, nodes, path, zeros, HCRC; the body, what follows its head.
_MACS, _TYPE, _NODES, _PATH, _ZEROS, _HCRC, _HEAD = 0, 3, 4, 5, 6, 7, 8
_COUNTER, _NONCES = 9, 10
BODY = 14
#: Words of a nonce, of both, of a key or tag.
_NONCE, _BOTH, _KEY = 2, 4, 4

#: Words of a record, and of what is kept for the frame under way; some are in both.
_OFFERED, ASKED, _KM = 0, 2, 4
_OF_MACS, _OF_NODES, _OF_PATH, _OF_COUNTER, _OF_NONCES = 8, 11, 12, 13, 14
_OF_ALL = 10
_NEXT, _SIZE, _TAG = 18, 19, 20
ANSWER = 32
_KNOCK, _ONE, _SEALED, _EVENT = 0, 4, 24, 28

assert ANSWER + FOLLOWS_MAX // 4 <= 128


def protocol() -> Program:
    """The whole program."""
    p = Program()
    for place in ("start", "frame", "event", "announce"):
        p.jump(place)
    _starts(p)
    _judges(p)
    _asks(p)
    _requests(p)
    _acts(p)
    _acknowledges(p)
    _tells(p)
    _announces(p)
    _parts(p)
    for number, name in enumerate(COUNTERS):
        p.place(name)
        p.count(number)
        p.do(Do.END)
    p.place("end")
    p.do(Do.END)
    return p


def _starts(p: Program) -> None:
    """After a reset: the knock, and a nonce for each manager number."""
    p.place("start")
    p.words(Op.MAC, Source.STATE, State.LABEL_KNOCK, last=True)
    p.words(Op.STORE, Source.RESULT, 0, Part.GLOBAL, _KNOCK, _KEY)
    p.words(Op.STORE, Source.STATE, State.ONE, Part.GLOBAL, _ONE)
    p.words(Op.STORE, Source.STATE, State.ONE, Part.GLOBAL, _EVENT)
    p.place("draw")
    p.words(Op.STORE, Source.RANDOM, 0, Part.RECORD, _OFFERED, _NONCE)
    p.do(Do.NEXT)
    p.jump("draw", if_=If.MORE)
    p.do(Do.READY)
    p.do(Do.END)


def _judges(p: Program) -> None:
    """A frame: whether it is for this node, and has the form of one."""
    p.place("frame")
    p.words(Op.KEEP, Source.CAME, _NODES)
    p.jump("end", if_=If.FROM_MANAGER, unless=True)
    p.jump("ours", if_=If.OURS)
    p.jump("end", if_=If.ANYBODY, unless=True)
    p.words(Op.COMPARE, Source.STATE, State.MAC, Part.CAME, _MACS)
    p.words(Op.COMPARE, Source.STATE, State.MAC.value + 1, Part.CAME, _MACS + 1, argument=1)
    p.jump("end", if_=If.DIFFERS)
    p.place("ours")
    p.words(Op.LOAD, Source.CAME, _HEAD, argument=Load.HEAD)
    p.jump("damaged", if_=If.FORM, unless=True)
    p.words(Op.CHECK, Source.CAME, _TYPE, argument=Check.LAST)
    p.words(Op.CHECK, Source.CAME, _NODES, argument=Check.LAST)
    p.words(Op.CHECK, Source.CAME, _PATH, argument=Check.PATH)
    p.words(Op.CHECK, Source.CAME, _ZEROS, argument=Check.ALL)
    p.words(Op.CHECK, Source.CAME, _HCRC, argument=Check.FIRST)
    p.jump("damaged", if_=If.DIFFERS)
    for kind, place in ((Kind.ASK, "ask"), (Kind.REQUEST, "request"),
                        (Kind.EVENT_ACK, "acknowledged")):
        p.jump(place, if_=If.KIND, b=kind)
    p.jump("damaged")


def _is_intact(p: Program) -> None:
    p.call("crc")
    p.jump("damaged", if_=If.INTACT, unless=True)


def _asks(p: Program) -> None:
    """An ASK."""
    p.place("ask")
    p.words(Op.CHECK, Source.CAME, _COUNTER, count=1 + _NONCE, argument=Check.ALL)
    p.jump("damaged", if_=If.DIFFERS)
    p.jump("damaged", if_=If.EMPTY, unless=True)
    p.words(Op.COMPARE, Source.CAME, BODY, Part.GLOBAL, _KNOCK, _KEY)
    p.jump("knock", if_=If.DIFFERS)
    _is_intact(p)
    p.jump("early", if_=If.YOUNG, to=Part.RECORD, b=ASKED)
    p.words(Op.STORE, Source.STATE, State.TIME, Part.RECORD, ASKED)
    p.call("note")
    p.do(Do.KIND, Kind.CHALLENGE)
    p.call("begin")
    p.words(Op.OUT, Source.RECORD, _OFFERED, Part.OUT, _NONCES, _NONCE)
    p.words(Op.OUT, Source.CAME, _NONCES + _NONCE, Part.OUT, _NONCES + _NONCE, _NONCE)
    p.words(Op.OUT, Source.IDENTITY, 0, Part.OUT, BODY, IDENTITY_BYTES // 4)
    p.jump("say")


def _same_association(p: Program) -> None:
    """``differs`` if the frame is not of the association that there is."""
    p.words(Op.COMPARE, Source.CAME, _NODES, Part.RECORD, _OF_NODES)
    p.words(Op.COMPARE, Source.CAME, _NONCES, Part.RECORD, _OF_NONCES, _BOTH)


def _requests(p: Program) -> None:
    """A REQUEST: the association, or another one, and its tag."""
    p.place("request")
    p.jump("first", if_=If.OPEN, unless=True)
    _same_association(p)
    p.jump("first", if_=If.DIFFERS)
    p.words(Op.COMPARE, Source.CAME, _COUNTER, Part.RECORD, _OF_COUNTER)
    p.jump("again", if_=If.DIFFERS, unless=True)
    p.words(Op.COMPARE, Source.CAME, _COUNTER, Part.RECORD, _NEXT)
    p.jump("stale", if_=If.DIFFERS)
    _is_intact(p)
    p.place("known")
    p.words(Op.LOAD, Source.RECORD, _KM, count=_KEY, argument=Load.KEY)
    p.do(Do.KNOWN)
    p.jump("unseal")

    p.place("first")
    p.words(Op.COMPARE, Source.CAME, _COUNTER, Part.GLOBAL, _ONE)
    p.words(Op.COMPARE, Source.CAME, _NONCES, Part.RECORD, _OFFERED, _NONCE)
    p.jump("stale", if_=If.DIFFERS)
    p.jump("stale", if_=If.DRY)
    _is_intact(p)
    p.words(Op.MAC, Source.STATE, State.LABEL_ASSOCIATION)
    p.words(Op.MAC, Source.CAME, _NONCES, count=_BOTH)
    p.words(Op.MAC, Source.STATE, State.MANAGER, last=True, argument=1)
    p.words(Op.LOAD, Source.RESULT, count=_KEY, argument=Load.KEY)
    p.do(Do.FRESH)

    p.place("unseal")
    p.words(Op.LOAD, Source.CAME, _COUNTER, argument=Load.COUNTER)
    p.do(Do.UNSEAL)
    p.words(Op.ASSOCIATED, Source.STATE, State.LENGTH)
    p.words(Op.ASSOCIATED, Source.CAME, _NODES)
    p.words(Op.ASSOCIATED, Source.CAME, _HEAD, count=2 + _BOTH, last=True)
    p.words(Op.CRYPT, Source.CAME, BODY, Part.CAME, BODY, Count.SIZE)
    p.words(Op.STORE, Source.TAG, 0, Part.GLOBAL, _SEALED, _KEY)
    p.words(Op.COMPARE, Source.CAME, BODY, Part.GLOBAL, _SEALED, _KEY, a_behind=True, last=True)
    p.jump("tag", if_=If.DIFFERS)
    p.jump("heard", if_=If.KIND, b=Kind.EVENT_ACK)


def _acts(p: Program) -> None:
    """A REQUEST with the right tag: it is done and answered. And the last one once more."""
    p.jump("done", if_=If.FRESH, unless=True)
    p.words(Op.STORE, Source.RANDOM, 0, Part.RECORD, _OFFERED, _NONCE)
    p.words(Op.STORE, Source.KEY, 0, Part.RECORD, _KM, _KEY)
    p.do(Do.OPEN)
    p.place("done")
    p.words(Op.STORE, Source.CAME, _MACS, Part.RECORD, _OF_MACS, 3)
    p.words(Op.STORE, Source.CAME, _NODES, Part.RECORD, _OF_NODES)
    p.words(Op.STORE, Source.STATE, State.PATH, Part.RECORD, _OF_PATH)
    p.words(Op.STORE, Source.CAME, _COUNTER, Part.RECORD, _OF_COUNTER, 1 + _BOTH)
    p.words(Op.STORE, Source.CAME, BODY, Part.RECORD, _TAG, _KEY, a_behind=True)
    p.words(Op.KEEP, Source.CAME, _COUNTER)
    p.words(Op.STORE, Source.STATE, State.NEXT, Part.RECORD, _NEXT)
    p.do(Do.RUN)
    p.words(Op.STORE, Source.STATE, State.SIZE, Part.RECORD, _SIZE)
    p.call("note")
    p.do(Do.KIND, Kind.ANSWER)
    p.call("seal")
    p.words(Op.CRYPT, Source.OUT, BODY, Part.RECORD, ANSWER, Count.SIZE)
    p.words(Op.STORE, Source.TAG, 0, Part.RECORD, ANSWER, _KEY, b_behind=True)
    p.place("answer")
    p.call("begin")
    p.words(Op.OUT, Source.GLOBAL, _OF_NONCES, Part.OUT, _NONCES, _BOTH)
    p.words(Op.OUT, Source.RECORD, ANSWER, Part.OUT, BODY, Count.SIZE)
    p.words(Op.OUT, Source.RECORD, ANSWER, Part.OUT, BODY, _KEY, a_behind=True, b_behind=True)
    p.jump("say")
    p.place("again")
    p.words(Op.COMPARE, Source.CAME, BODY, Part.RECORD, _TAG, _KEY, a_behind=True, last=True)
    p.jump("stale", if_=If.DIFFERS)
    _is_intact(p)
    p.words(Op.LOAD, Source.RECORD, _SIZE, argument=Load.SIZE)
    p.call("note")
    p.do(Do.KIND, Kind.ANSWER)
    p.jump("answer")


def _acknowledges(p: Program) -> None:
    """An EVENT_ACK."""
    p.place("acknowledged")
    p.jump("damaged", if_=If.EMPTY, unless=True)
    _same_association(p)
    p.words(Op.COMPARE, Source.CAME, _COUNTER, Part.GLOBAL, _EVENT)
    p.jump("stale", if_=If.DIFFERS)
    p.jump("stale", if_=If.TOLD, unless=True)
    _is_intact(p)
    p.jump("known")
    p.place("heard")
    p.do(Do.HEARD)
    p.words(Op.KEEP, Source.GLOBAL, _EVENT)
    p.words(Op.STORE, Source.STATE, State.NEXT, Part.GLOBAL, _EVENT)
    p.do(Do.END)


def _tells(p: Program) -> None:
    """An event that is due."""
    p.place("event")
    p.words(Op.STORE, Source.RECORD, _OF_MACS, Part.GLOBAL, _OF_MACS, _OF_ALL)
    p.words(Op.STORE, Source.GLOBAL, _EVENT, Part.GLOBAL, _OF_COUNTER)
    p.words(Op.LOAD, Source.RECORD, _KM, count=_KEY, argument=Load.KEY)
    p.do(Do.KIND, Kind.EVENT)
    p.call("seal")
    p.words(Op.CRYPT, Source.EVENT, 0, Part.OUT, BODY, Count.SIZE)
    p.words(Op.STORE, Source.TAG, 0, Part.OUT, BODY, _KEY, b_behind=True)
    p.call("begin")
    p.words(Op.OUT, Source.GLOBAL, _OF_NONCES, Part.OUT, _NONCES, _BOTH)
    p.words(Op.BODY, Source.OUT, BODY, count=Count.SIZE)
    p.words(Op.BODY, Source.OUT, BODY, count=_KEY, a_behind=True)
    p.do(Do.SENT)
    p.place("say")
    p.words(Op.OUT, Source.STATE, State.CRC, Part.OUT, BODY + _KEY, b_behind=True)
    p.do(Do.SAY)
    p.do(Do.END)


def _announces(p: Program) -> None:
    """An announcement that is due."""
    p.place("announce")
    p.do(Do.KIND, Kind.ANNOUNCE)
    p.do(Do.BEGIN)
    p.words(Op.OUT, Source.STATE, State.TO_ALL, Part.OUT, _MACS, 3)
    p.words(Op.OUT, Source.STATE, State.ETHERNET, Part.OUT, _TYPE)
    p.words(Op.HEADER, Source.STATE, State.TYPE, argument=2)
    p.words(Op.OUT, Source.STATE, State.OWN, Part.OUT, _NODES, 2)
    p.words(Op.OUT, Source.STATE, State.ZERO, Part.OUT, _ZEROS)
    p.words(Op.HEADER, Source.STATE, State.ZERO, argument=2)
    p.words(Op.OUT, Source.STATE, State.HCRC, Part.OUT, _HCRC)
    p.words(Op.OUT, Source.STATE, State.HEAD, Part.OUT, _HEAD)
    for word in range(_COUNTER, BODY):
        p.words(Op.OUT, Source.STATE, State.ZERO, Part.OUT, word)
    p.words(Op.OUT, Source.IDENTITY, 0, Part.OUT, BODY, IDENTITY_BYTES // 4)
    p.do(Do.ANNOUNCED)
    p.jump("say")


def _parts(p: Program) -> None:
    """What is called."""
    p.place("note")  # of the frame that came: for who is it, and of which association
    p.words(Op.STORE, Source.CAME, _MACS, Part.GLOBAL, _OF_MACS, 3)
    p.words(Op.STORE, Source.CAME, _NODES, Part.GLOBAL, _OF_NODES)
    p.words(Op.STORE, Source.STATE, State.PATH, Part.GLOBAL, _OF_PATH)
    p.words(Op.STORE, Source.CAME, _COUNTER, Part.GLOBAL, _OF_COUNTER, 1 + _BOTH)
    p.returns()

    p.place("crc")  # of the frame that came
    p.do(Do.BEGIN)
    p.words(Op.HEADER, Source.STATE, State.TYPE, argument=2)
    p.words(Op.HEADER, Source.CAME, _NODES, count=4)
    p.words(Op.BODY, Source.CAME, _HEAD, count=2 + _BOTH)
    p.words(Op.BODY, Source.CAME, BODY, count=Count.SIZE)
    p.words(Op.BODY, Source.CAME, BODY, count=_KEY + 1, a_behind=True)
    p.returns()

    p.place("seal")  # what is sent, up to its message
    p.words(Op.LOAD, Source.GLOBAL, _OF_COUNTER, argument=Load.COUNTER)
    p.do(Do.SEAL)
    p.words(Op.ASSOCIATED, Source.STATE, State.LENGTH)
    p.words(Op.KEEP, Source.GLOBAL, _OF_NODES)
    p.words(Op.ASSOCIATED, Source.STATE, State.TURNED)
    p.words(Op.ASSOCIATED, Source.STATE, State.HEAD)
    p.words(Op.ASSOCIATED, Source.GLOBAL, _OF_COUNTER, count=1 + _BOTH, last=True)
    p.returns()

    p.place("begin")  # of the frame that is sent: to whom the other one is from
    p.do(Do.BEGIN)
    for n in range(3):
        p.words(Op.KEEP, Source.GLOBAL, _OF_MACS + (n + 1) % 3)
        p.words(Op.OUT, Source.MIXED, _OF_MACS + (n + 2) % 3, Part.OUT, _MACS + n)
    p.words(Op.OUT, Source.STATE, State.ETHERNET, Part.OUT, _TYPE)
    p.words(Op.HEADER, Source.STATE, State.TYPE, argument=2)
    p.words(Op.KEEP, Source.GLOBAL, _OF_NODES)
    p.words(Op.OUT, Source.STATE, State.TURNED, Part.OUT, _NODES)
    p.words(Op.OUT, Source.GLOBAL, _OF_PATH, Part.OUT, _PATH)
    p.words(Op.OUT, Source.STATE, State.ZERO, Part.OUT, _ZEROS)
    p.words(Op.HEADER, Source.STATE, State.ZERO, argument=2)
    p.words(Op.OUT, Source.STATE, State.HCRC, Part.OUT, _HCRC)
    p.words(Op.OUT, Source.STATE, State.HEAD, Part.OUT, _HEAD)
    p.words(Op.OUT, Source.GLOBAL, _OF_COUNTER, Part.OUT, _COUNTER)
    p.returns()
