"""The program of the opening agent: what each end does with each opening frame.

Ref: docs/reference/keyed-sessions.md
"""

from dxpu.fabric.wire.frame_types import FrameType

from .program import Check, If, Label, Op, Program, Set, Source, State
from .types import Record, Told

__all__ = ["COUNTERS", "protocol"]

#: Names of the counters of COUNT.
COUNTERS = ("knock", "proof", "stale")

#: Words of a body: the nonce of the fields, tags, the other fields; nonces, proof, CRC-32C.
_NONCE, _OFFERED, _ECHOED, _FIELDS, _NONCES, _PROOF, _CRC = 0, 2, 3, 4, 14, 22, 30
#: How many words they have.
_NONCE_SIZE, _FIELDS_SIZE, _PROOF_SIZE = 4, 10, 8
_OPENER, _ANSWERER = Record.NONCES, Record.NONCES + _NONCE_SIZE


def protocol() -> Program:
    """The whole program. It begins with a jump for each :class:`~.types.Called`, and one for a
    key."""
    p = Program()
    for place in ("hello", "hello_ack", "hello_done", "send_hello", "send_hello_ack",
                  "send_hello_done", "heard", "key"):
        p.jump(place)
    _answers(p)
    _is_answered(p)
    _opens(p)
    _sends(p)
    _key(p)
    _calculates(p)
    p.place("heard")
    p.do(Op.SET, Set.SLOT, b=Record.MADE)
    p.do(Op.SET, Set.CURRENT)
    p.do(Op.END)
    for name in COUNTERS:
        p.place(name)
        p.do(Op.COUNT, COUNTERS.index(name))
        p.do(Op.END)
    p.place("end")
    p.do(Op.END)
    return p


def _same_nonce(p: Program) -> None:
    """The nonce of the fields is the first half of the opener's."""
    p.words(Op.KEEP, Source.FRAME, _NONCE, count=2)
    p.words(Op.CHECK, Source.FRAME, _NONCES, count=2, argument=Check.KEPT)


def _answers(p: Program) -> None:
    """The box, of a HELLO."""
    p.place("hello")
    p.do(Op.SET, Set.SLOT0)
    p.jump("other_knock", if_=If.KEY, unless=True)
    p.words(Op.COMPARE, Source.FRAME, _PROOF, Record.KNOCK0, _PROOF_SIZE)
    p.jump("knocked", if_=If.DIFFERS, unless=True)
    p.place("other_knock")
    p.do(Op.SET, Set.SLOT1)
    p.jump("knock", if_=If.KEY, unless=True)
    p.words(Op.COMPARE, Source.FRAME, _PROOF, Record.KNOCK1, _PROOF_SIZE)
    p.jump("knock", if_=If.DIFFERS)
    p.place("knocked")
    p.words(Op.CHECK, Source.STATE, State.TAG, argument=Check.ZERO)
    p.words(Op.CHECK, Source.FRAME, _OFFERED, argument=Check.SOME)
    p.words(Op.CHECK, Source.FRAME, _ECHOED, argument=Check.ZERO)
    p.words(Op.CHECK, Source.FRAME, _NONCES + _NONCE_SIZE, count=_NONCE_SIZE, argument=Check.ZERO)
    _same_nonce(p)
    p.jump("stale", if_=If.DIFFERS)
    p.jump("offer", if_=If.OFFERED, unless=True, b=Record.ANSWERER_TAG)
    p.words(Op.COMPARE, Source.FRAME, _NONCES, _OPENER, _NONCE_SIZE)
    p.words(Op.COMPARE, Source.FRAME, _CRC, Record.CRC, 2)
    p.jump("another", if_=If.DIFFERS)
    p.jump("end", if_=If.SAID, b=Record.SAID)
    p.words(Op.STORE, Source.STATE, State.TIME, Record.SAID)
    p.do(Op.TELL, Told.AGAIN)
    p.do(Op.END)
    p.place("another")
    p.jump("stale", if_=If.YOUNG, b=Record.MADE)

    p.place("offer")
    p.jump("stale", if_=If.DRY)
    p.do(Op.TELL, Told.WANTS)
    p.jump("stale", if_=If.REFUSED)
    p.words(Op.STORE, Source.FRAME, _NONCES, _OPENER, _NONCE_SIZE)
    p.words(Op.STORE, Source.RANDOM, 0, _ANSWERER, _NONCE_SIZE)
    p.words(Op.STORE, Source.OWN, 0, Record.FIELDS, _FIELDS_SIZE)
    p.words(Op.STORE, Source.FRAME, _OFFERED, Record.OPENER_TAG)
    p.words(Op.STORE, Source.STATE, State.OFFER, Record.ANSWERER_TAG)
    p.words(Op.STORE, Source.FRAME, _CRC, Record.CRC, 2)
    for when in (Record.MADE, Record.SAID):
        p.words(Op.STORE, Source.STATE, State.TIME, when)
    p.do(Op.SET, Set.KEY, count=_PROOF_SIZE)
    for kind, tag, where in ((Set.HELLO_ACK, Record.OPENER_TAG, Record.PROOF),
                             (Set.HELLO_DONE, Record.ANSWERER_TAG, Record.AWAITED)):
        p.do(Op.SET, kind)
        p.call("begin_proof")
        p.words(Op.MAC, Source.RECORD, 0, tag)
        p.call("end_proof_of_answerer")
        p.words(Op.STORE, Source.RESULT, 0, where, _PROOF_SIZE)
    p.do(Op.TELL, Told.OFFERS)
    p.do(Op.END)


def _is_answered(p: Program) -> None:
    """The box, of a HELLO_DONE."""
    p.place("hello_done")
    p.words(Op.COMPARE, Source.FRAME, _PROOF, Record.OPENED, _PROOF_SIZE)
    p.jump("repeats", if_=If.DIFFERS, unless=True)
    p.jump("stale", if_=If.OFFERED, unless=True, b=Record.ANSWERER_TAG)
    p.words(Op.COMPARE, Source.STATE, State.TAG, Record.ANSWERER_TAG)
    p.words(Op.COMPARE, Source.FRAME, _OFFERED, Record.OPENER_TAG, 2)
    p.words(Op.COMPARE, Source.FRAME, _NONCES, Record.NONCES, 2 * _NONCE_SIZE)
    _same_nonce(p)
    p.jump("stale", if_=If.DIFFERS)
    p.words(Op.COMPARE, Source.FRAME, _PROOF, Record.AWAITED, _PROOF_SIZE)
    p.jump("proof", if_=If.DIFFERS)
    p.do(Op.SET, Set.SLOT, b=Record.MADE)
    p.jump("stale", if_=If.KEY, unless=True)
    p.do(Op.SET, Set.KEY, count=_PROOF_SIZE)
    p.call("numbers")
    p.words(Op.STORE, Source.FRAME, _PROOF, Record.OPENED, _PROOF_SIZE)
    p.words(Op.KEEP_TAG, Source.RECORD, 0, Record.OPENER_TAG)
    p.words(Op.STORE, Source.STATE, State.ZERO, Record.ANSWERER_TAG)
    p.do(Op.SET, Set.CURRENT)
    p.do(Op.TELL, Told.BEGINS)
    p.do(Op.END)
    p.place("repeats")
    p.do(Op.TELL, Told.REPEATS)
    p.do(Op.END)


def _opens(p: Program) -> None:
    """The host, of a HELLO_ACK."""
    p.place("hello_ack")
    p.jump("stale", if_=If.OFFERED, unless=True, b=Record.OPENER_TAG)
    p.words(Op.COMPARE, Source.STATE, State.TAG, Record.OPENER_TAG)
    p.words(Op.COMPARE, Source.FRAME, _ECHOED, Record.OPENER_TAG)
    p.words(Op.CHECK, Source.FRAME, _OFFERED, argument=Check.SOME)
    p.words(Op.COMPARE, Source.FRAME, _NONCES, _OPENER, _NONCE_SIZE)
    _same_nonce(p)
    p.jump("stale", if_=If.DIFFERS)
    p.jump("answered", if_=If.CONFIRMS)
    p.do(Op.SET, Set.SLOT, b=Record.MADE)
    p.jump("stale", if_=If.KEY, unless=True)
    p.do(Op.SET, Set.KEY, count=_PROOF_SIZE)
    for kind, tag, where in ((Set.HELLO_ACK, _ECHOED, Record.AWAITED),
                             (Set.HELLO_DONE, _OFFERED, Record.PROOF)):
        p.do(Op.SET, kind)
        p.call("begin_proof")
        p.words(Op.MAC, Source.FRAME, tag)
        p.call("end_proof_of_opener")
        p.words(Op.STORE, Source.RESULT, 0, where, _PROOF_SIZE)
        if kind == Set.HELLO_ACK:
            p.words(Op.COMPARE, Source.FRAME, _PROOF, Record.AWAITED, _PROOF_SIZE)
            p.jump("proof", if_=If.DIFFERS)
    p.words(Op.STORE, Source.FRAME, _NONCES + _NONCE_SIZE, _ANSWERER, _NONCE_SIZE)
    p.words(Op.STORE, Source.FRAME, _OFFERED, Record.ANSWERER_TAG)
    p.call("numbers")
    p.words(Op.KEEP_TAG, Source.FRAME, _OFFERED)
    p.do(Op.TELL, Told.BEGINS)
    p.do(Op.END)
    p.place("answered")
    p.words(Op.COMPARE, Source.FRAME, _OFFERED, Record.ANSWERER_TAG)
    p.words(Op.COMPARE, Source.FRAME, _NONCES + _NONCE_SIZE, _ANSWERER, _NONCE_SIZE)
    p.words(Op.COMPARE, Source.FRAME, _PROOF, Record.AWAITED, _PROOF_SIZE)
    p.jump("stale", if_=If.DIFFERS)
    p.do(Op.TELL, Told.AGAIN)
    p.do(Op.END)


def _sends(p: Program) -> None:
    """Bodies of frames."""
    p.place("send_hello")
    p.jump("knocks", if_=If.OFFERED, b=Record.OPENER_TAG)
    p.jump("end", if_=If.DRY)
    p.do(Op.SET, Set.TURN, b=Record.MADE)
    p.jump("end", if_=If.KEY, unless=True)
    p.words(Op.STORE, Source.RANDOM, 0, _OPENER, _NONCE_SIZE)
    p.words(Op.STORE, Source.STATE, State.ZERO, _ANSWERER, _NONCE_SIZE)
    p.words(Op.STORE, Source.OWN, 0, Record.FIELDS, _FIELDS_SIZE)
    p.words(Op.STORE, Source.STATE, State.OFFER, Record.OPENER_TAG)
    p.words(Op.STORE, Source.STATE, State.ZERO, Record.ANSWERER_TAG)
    p.words(Op.STORE, Source.STATE, State.TIME, Record.MADE)
    p.place("knocks")
    p.do(Op.SET, Set.SLOT, b=Record.MADE)
    p.words(Op.BODY, Source.RECORD, _OFFERED, Record.OPENER_TAG, 2)
    p.call("body")
    p.jump("knocks1", if_=If.SLOT1)
    p.words(Op.BODY, Source.RECORD, _PROOF, Record.KNOCK0, _PROOF_SIZE)
    p.jump("say_hello")
    p.place("knocks1")
    p.words(Op.BODY, Source.RECORD, _PROOF, Record.KNOCK1, _PROOF_SIZE)
    p.place("say_hello")
    p.do(Op.SAY, FrameType.HELLO)
    p.do(Op.END)
    for place, mine, theirs, kind in (
            ("send_hello_ack", Record.ANSWERER_TAG, Record.OPENER_TAG, FrameType.HELLO_ACK),
            ("send_hello_done", Record.OPENER_TAG, Record.ANSWERER_TAG,
             FrameType.HELLO_DONE)):
        p.place(place)
        p.jump("end", if_=If.OFFERED, unless=True, b=mine)
        p.words(Op.KEEP_TAG, Source.RECORD, 0, theirs)  # for the header
        p.words(Op.BODY, Source.RECORD, _OFFERED, mine)
        p.words(Op.BODY, Source.RECORD, _ECHOED, theirs)
        p.call("body")
        p.words(Op.BODY, Source.RECORD, _PROOF, Record.PROOF, _PROOF_SIZE)
        p.do(Op.SAY, kind)
        p.do(Op.END)
    p.place("body")
    p.words(Op.BODY, Source.RECORD, _NONCE, _OPENER, 2)
    p.words(Op.BODY, Source.RECORD, _FIELDS, Record.FIELDS, _FIELDS_SIZE)
    p.words(Op.BODY, Source.RECORD, _NONCES, Record.NONCES, 2 * _NONCE_SIZE)
    p.do(Op.RETURN)


def _key(p: Program) -> None:
    """A key: the knocks of all sessions with its peer. What was said under the key that it replaces
    is forgotten."""
    p.place("key")
    p.do(Op.SET, Set.VACANT)
    p.words(Op.STORE, Source.KEY, count=_PROOF_SIZE)
    p.do(Op.SET, Set.KEY, count=_PROOF_SIZE)
    p.do(Op.SET, Set.HELLO)
    p.do(Op.SET, Set.FIRST)
    p.place("key_of_session")
    p.words(Op.MAC, Source.LABEL, Label.DXF)
    p.words(Op.MAC, Source.LABEL, Label.KNOCK)
    p.words(Op.MAC, Source.LABEL, Label.HEAD, count=4, last=True)
    p.jump("key1", if_=If.SLOT1)
    p.words(Op.STORE, Source.RESULT, 0, Record.KNOCK0, _PROOF_SIZE)
    p.jump("old_key")
    p.place("key1")
    p.words(Op.STORE, Source.RESULT, 0, Record.KNOCK1, _PROOF_SIZE)
    p.place("old_key")
    p.jump("next_session", if_=If.SAME, unless=True, b=Record.MADE)
    p.words(Op.STORE, Source.STATE, State.ZERO, Record.OPENER_TAG, 2)
    p.place("next_session")
    p.do(Op.SET, Set.NEXT)
    p.jump("key_of_session", if_=If.MORE)
    p.do(Op.SET, Set.FILLED)
    p.do(Op.END)


def _calculates(p: Program) -> None:
    """Authenticated messages."""
    p.place("begin_proof")
    p.words(Op.MAC, Source.LABEL, Label.DXF)
    p.words(Op.MAC, Source.LABEL, Label.PROOF)
    p.words(Op.MAC, Source.LABEL, Label.HEAD, count=4)
    p.do(Op.RETURN)
    # Fields of the HELLO_ACK, nonces, fields of the HELLO.
    p.place("end_proof_of_answerer")
    p.words(Op.MAC, Source.RECORD, 0, _OPENER, 2)
    p.words(Op.MAC, Source.RECORD, 0, Record.ANSWERER_TAG)
    p.words(Op.MAC, Source.RECORD, 0, Record.OPENER_TAG)
    p.words(Op.MAC, Source.RECORD, 0, Record.FIELDS, _FIELDS_SIZE)
    p.words(Op.MAC, Source.RECORD, 0, Record.NONCES, 2 * _NONCE_SIZE)
    p.words(Op.MAC, Source.FRAME, _NONCE, 0, 4 + _FIELDS_SIZE, last=True)
    p.do(Op.RETURN)
    p.place("end_proof_of_opener")
    p.words(Op.MAC, Source.FRAME, _NONCE, 0, 4 + _FIELDS_SIZE)
    p.words(Op.MAC, Source.FRAME, _NONCES, 0, 2 * _NONCE_SIZE)
    p.words(Op.MAC, Source.RECORD, 0, _OPENER, 2)
    p.words(Op.MAC, Source.RECORD, 0, Record.OPENER_TAG)
    p.words(Op.MAC, Source.STATE, State.ZERO)
    p.words(Op.MAC, Source.RECORD, 0, Record.FIELDS, _FIELDS_SIZE, last=True)
    p.do(Op.RETURN)
    p.place("numbers")
    p.words(Op.MAC, Source.LABEL, Label.DXF)
    p.words(Op.MAC, Source.LABEL, Label.NUMBERS)
    p.words(Op.MAC, Source.RECORD, 0, Record.NONCES, 2 * _NONCE_SIZE, last=True)
    p.words(Op.KEEP, Source.RESULT, count=_PROOF_SIZE)
    p.do(Op.RETURN)
