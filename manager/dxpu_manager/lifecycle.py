"""States of a GPU in the pool, and the causes of changes."""

from enum import StrEnum

__all__ = ["BOUND", "Cause", "State", "TRANSITIONS", "may"]


class State(StrEnum):
    """State of a GPU."""

    #: The slot is empty.
    ABSENT = "absent"
    #: There, but not to be given away: just found, dirty, or set aside by somebody.
    QUARANTINED = "quarantined"
    #: Can be given to a host.
    FREE = "free"
    #: Kept back for one that fails.
    SPARE = "spare"
    #: Kept for a host; nothing is bound.
    RESERVED = "reserved"
    #: Being bound; a host may see it already.
    ATTACHING = "attaching"
    #: A host has it.
    ATTACHED = "attached"
    #: Being taken from a host, and wiped.
    DRAINING = "draining"
    #: Broken; nothing is bound.
    FAILED = "failed"


#: States in which rows of mapping tables may be bound to the GPU.
BOUND = frozenset({State.ATTACHING, State.ATTACHED, State.DRAINING})


class Cause(StrEnum):
    """Why a state changed."""

    FOUND = "found in its slot"
    ADMITTED = "admitted"
    SET_ASIDE = "set aside"
    SPARED = "made a spare"
    UNSPARED = "no spare any more"
    KEPT = "kept by the plan"
    UNKEPT = "let go by the plan"
    RESERVED = "reserved"
    UNRESERVED = "reservation ended"
    ATTACH = "attach"
    EVIDENCE = "the host has it"
    REBIND = "bound again, as a row was lost"
    DETACH = "detach"
    ROLLED_BACK = "attach rolled back"
    CLEAN = "released and clean"
    DIRTY = "keeps what the host left"
    BROKEN = "broken"
    PULLED = "gone from its slot"
    RETIRED = "retired"
    DRIFT = "bound by somebody else"


#: Every change there is: from which states, to which, for each cause.
TRANSITIONS: dict[Cause, tuple[frozenset[State], State]] = {
    cause: (frozenset(origins), to) for cause, origins, to in (
        (Cause.FOUND, (State.ABSENT,), State.QUARANTINED),
        (Cause.ADMITTED, (State.QUARANTINED,), State.FREE),
        (Cause.SET_ASIDE, (State.FREE, State.SPARE, State.RESERVED, State.FAILED),
         State.QUARANTINED),
        (Cause.SPARED, (State.FREE,), State.SPARE),
        (Cause.UNSPARED, (State.SPARE,), State.FREE),
        (Cause.KEPT, (State.FREE,), State.SPARE),
        (Cause.UNKEPT, (State.SPARE,), State.FREE),
        (Cause.RESERVED, (State.FREE,), State.RESERVED),
        (Cause.UNRESERVED, (State.RESERVED,), State.FREE),
        (Cause.ATTACH, (State.FREE, State.RESERVED, State.SPARE), State.ATTACHING),
        (Cause.EVIDENCE, (State.ATTACHING,), State.ATTACHED),
        (Cause.REBIND, (State.ATTACHED,), State.ATTACHING),
        (Cause.DETACH, (State.ATTACHED,), State.DRAINING),
        (Cause.ROLLED_BACK, (State.ATTACHING,), State.DRAINING),
        (Cause.CLEAN, (State.DRAINING,), State.FREE),
        (Cause.DIRTY, (State.DRAINING, State.FREE, State.SPARE, State.RESERVED),
         State.QUARANTINED),
        (Cause.BROKEN, (State.DRAINING,), State.FAILED),
        (Cause.PULLED, (State.QUARANTINED, State.FREE, State.SPARE, State.RESERVED, State.FAILED,
                        State.DRAINING), State.ABSENT),
        (Cause.RETIRED, (State.QUARANTINED, State.FAILED), State.ABSENT),
        (Cause.DRIFT, (State.FREE, State.SPARE, State.RESERVED, State.FAILED), State.QUARANTINED),
    )}


def may(state: State, cause: Cause) -> bool:
    """Whether a cause leads from a state to another one."""
    return state in TRANSITIONS[cause][0]
