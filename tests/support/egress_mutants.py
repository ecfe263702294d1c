"""Faults of the shared egress, for its tests and its contracts to find."""

from operator import attrgetter

from tests.support.mutate import mutant

__all__ = ["FAULTS", "with_fault"]

#: Agent, and the change of its source.
FAULTS = {
    "beats are written over those that have not left": (
        "_writer", ("full.eq(regions.is_full(queue, position, head.beats)", "full.eq(C(0)")),
    "one that is alone in its queue goes at once": (
        "_admission._counts", ("self.none.eq((stored", "self.none.eq(C(1) | (stored")),
    "one that waits goes when it has its turn": (
        "_admission._counts", ("self.taken.eq(~difference[-1])", "self.taken.eq(1)")),
    "a posted request at its port was taken": (
        "_admission._counts", ("Cat(~at_port.bit_select(self.older_slot, 1), ", "Cat(C(1, 1), ")),
    "one that comes to the port takes one away that was taken": (
        "_admission._counts", ("self.posted_at_port & ~Mux", "self.posted_at_port | Mux")),
    "one that had to wait is not looked at again": (
        "_admission", ("& ~(self.posted_taken | C(0, slots)).replicate(2)", "")),
    "a beat whose port is occupied is lost": (
        "_reader", ("passes.eq(arrived & ~refused.any())", "passes.eq(arrived)")),
    "a beat whose port was occupied gets no other turn": (
        "_reader", ("| self.admitted | refused)", "| self.admitted)")),
    "the beat behind one whose port is occupied comes to it": (
        "_reader", ("turns.chosen & ~refused", "turns.chosen")),
    "a beat is read twice": (
        "_reader", ("Mux(follows, next_head, heads.lookups[0].value)", "heads.lookups[0].value")),
    "a beat behind the last one is read": (
        "_reader", ("idle.eq(follows & was_drained)", "idle.eq(0)")),
    "a turn that reads nothing is the last one": ("_reader", ("drained & ~idle", "drained")),
}


def with_fault(design, fault):
    """A subclass of ``design``, a shared egress, with one of :data:`FAULTS`."""
    name, change = FAULTS[fault]

    class Faulty(design):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            agent = attrgetter(name)(self)
            agent.__class__ = mutant(type(agent), change)

    return Faulty
