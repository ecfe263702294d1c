"""Management: managers with the key of a node read and write it, among strangers.

A manager asks a node for a nonce, and gets the one that the node keeps for the manager number. The
key of the association is made from the node's key, the manager number and both nonces. The first
request with the nonce makes the association, instead of the one before, and uses the nonce up. From
then on there is one request at a time, each with the next counter; the last one again is answered
by the stored answer. The node's own news are events, one at a time, numbered from the reset, until
the manager has acknowledged each.

A stranger without the node's key can repeat a frame under a key and can make none; so each frame is
a term with a key. The network keeps every frame for ever. Besides there may be a stranger:

``"blind"``
    Sends anything, and sees no frame to others.
``"sniffer"``
    Sees each frame, asks, and answers managers, with every nonce seen so far.
"""

from typing import NamedTuple

from .search import Model, can_reach
from .tlps import replaced
from .wire import Wire

__all__ = ["FLAWS", "STRANGERS", "Management"]

#: Kinds of strangers.
STRANGERS = ("blind", "sniffer")

#: Flawed schemes: name and behaviour.
FLAWS = {
    "one nonce for all": "the key is that of the node's reset: one nonce, in which no manager has "
                         "a part",
    "no nonce of the manager": "the key covers the nonce of the node only",
    "no nonce of the node": "the key covers the nonce of the manager only",
    "nonce kept after use": "the node draws a nonce at a reset only",
    "counted nonces": "a manager counts its nonces, from its start",
    "answer made anew": "a request that comes again is answered anew, not by the stored answer",
    "a counter used again": "a manager that gives a request up sends the next one with its counter",
    "ASK ends the association": "a manager that asks has no association any more",
    "an association stays": "an association is not replaced",
    "epoch not checked": "a write of a lower epoch acts",
    "events from the present number": "the header of an event has the node's present number, not "
                                      "that of the association",
    "events without a number": "a manager tells the events of an association apart, and no others",
    "found by its number alone": "a node with a number does not listen to its factory address",
    "no knock": "a manager needs no proof to ask",
}

#: The number of a node that has none, and the nonce of a stranger.
UNASSIGNED, MADE_UP = 0, -1


class Operation(NamedTuple):
    """The content of a request, to be done once."""

    id: int
    manager: int
    epoch: int
    number: int | None  #: the node gets this number


class Key(NamedTuple):
    """Content of the key of an association."""

    number: int  #: of the manager
    node: int  #: nonce of the node
    manager: int  #: and of the manager


class Link(NamedTuple):
    """The manager's side of an association."""

    key: Key
    address: int
    counter: int = 0  #: of the newest request
    waits: Operation | None = None  #: for the answer to it
    heard: tuple[int, int] = (0, 0)  #: newest event in this association


class Association(NamedTuple):
    """The node's side of an association."""

    key: Key
    address: int
    counter: int
    request: Operation
    answer: tuple


class State(NamedTuple):
    """The node and the managers."""

    offered: tuple[int, ...]  #: the node's nonces, by manager number
    open: tuple[Association | None, ...]  #: by manager number
    managers: tuple[int | Link | None, ...]  #: an int has asked with this nonce
    drawn: int  #: nonces that the node has drawn
    nonces: tuple[int, ...]  #: newest nonce of each manager
    wire: int = 0
    number: int = UNASSIGNED
    epoch: int = 0
    acted: tuple[Operation, ...] = ()  #: since the beginning
    writer: int | None = None  #: manager number that wrote last
    events: tuple[int, int] = (0, 0)  #: events that happened, and that were acknowledged
    taken: tuple[tuple[int, int], ...] = ()  #: newest event of each manager, since its start
    operations: int = 0
    restarts: int = 0
    resets: int = 0
    fault: str | None = None


class Management(Model):
    """A node, managers, a network that repeats every frame ever sent, and a stranger.

    Parameters
    ----------
    flaw : str
        None for the scheme of the project, or a key of :data:`FLAWS`.
    stranger : str
        None or one of :data:`STRANGERS`.
    numbers : tuple of int
        Manager number of each manager; two may have the same by mistake.
    epochs : tuple of int
        Epoch of each manager.
    operations, restarts, resets, events : int
        Numbers of requests, of times at which a manager gives up, asks anew or starts again, of
        resets of the node, of events.
    renumber : bool
        The last request of all gives the node a number.
    """

    def __init__(self, flaw=None, *, stranger=None, numbers=(0,), epochs=(1, 2), operations=2,
                 restarts=1, resets=1, events=0, renumber=False):
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        if stranger is not None and stranger not in STRANGERS:
            raise ValueError(f"stranger must be None, blind or sniffer, not {stranger!r}")
        self.flaw, self.stranger = flaw, stranger
        self.numbers, self.epochs = numbers, epochs
        self.operations, self.restarts, self.resets = operations, restarts, resets
        self.events, self.renumber = events, renumber
        self.wire = Wire()
        self._ways_back: dict[tuple, bool] = {}

    def initial(self):
        kinds = max(self.numbers) + 1
        count = len(self.numbers)
        return State(tuple(self._drawn(n) for n in range(kinds)), (None,) * kinds, (None,) * count,
                     drawn=kinds, nonces=(0,) * count, taken=((0, 0),) * count)

    def _drawn(self, number):
        return 1 if self.flaw == "one nonce for all" else 1 + number

    def key(self, number, node, manager):
        """The key of an association."""
        match self.flaw:
            case "one nonce for all":
                return Key(0, node, 0)
            case "no nonce of the manager":
                return Key(number, node, 0)
            case "no nonce of the node":
                return Key(number, 0, manager)
        return Key(number, node, manager)

    # Actions

    def actions(self, state):
        for m, now in enumerate(state.managers):
            yield from self._manager(state, m, now)
        if state.resets < self.resets:
            yield "node: reset", self._reset(state)
        if state.events[0] < self.events:
            yield "node: event", state._replace(events=(state.events[0] + 1, state.events[1]))
        yield from self._tell(state)
        for frame in self.wire.frames(state.wire):
            yield from self._take(state, frame)
        if self.stranger == "blind":
            yield from self._blind(state)
        elif self.stranger == "sniffer":
            yield from self._sniffer(state)

    def _manager(self, state, m, now):
        number = self.numbers[m]
        if now is None:
            nonce = state.nonces[m] + 1
            yield (f"manager {m}: ASK(nonce {nonce})",
                   self._put(state, ("ASK", number, self._own(m, nonce)))._replace(
                       managers=replaced(state.managers, m, nonce),
                       nonces=replaced(state.nonces, m, nonce)))
            return
        if isinstance(now, Link) and now.waits is None and state.operations < self.operations:
            yield from self._request(state, m, now)
        if state.restarts < self.restarts:
            after = state._replace(restarts=state.restarts + 1)
            if isinstance(now, Link) and now.waits and self.flaw == "a counter used again":
                yield f"manager {m}: gives the request up", self._with(
                    after, m, now._replace(waits=None, counter=now.counter - 1))
            if isinstance(now, Link):
                yield f"manager {m}: asks anew", self._with(after, m, None)
            fresh = 0 if self.flaw == "counted nonces" else state.nonces[m]
            yield f"manager {m}: starts again", self._with(after, m, None)._replace(
                nonces=replaced(state.nonces, m, fresh), taken=replaced(state.taken, m, (0, 0)))

    @staticmethod
    def _own(m, nonce):
        """A nonce of one manager only."""
        return (m, nonce)

    def _request(self, state, m, now):
        id_ = state.operations + 1
        gets = 1 if self.renumber and id_ == self.operations else None
        operation = Operation(id_, m, self.epochs[m], gets)
        link = now._replace(counter=now.counter + 1, waits=operation)
        frame = ("REQUEST", link.address, link.key, link.counter, operation)
        yield (f"manager {m}: REQUEST {id_}(counter {link.counter})",
               self._with(self._put(state, frame), m, link)._replace(operations=id_))

    def _reset(self, state):
        """The node forgets everything, and draws other nonces."""
        count = len(state.offered)
        return state._replace(
            offered=tuple(state.drawn + self._drawn(n) for n in range(count)),
            drawn=state.drawn + count, open=(None,) * count, number=UNASSIGNED, epoch=0,
            writer=None, events=(0, 0), resets=state.resets + 1)

    def _tell(self, state):
        """The node sends the oldest event to the last writer."""
        if state.writer is None or state.events[0] == state.events[1]:
            return
        association = state.open[state.writer]
        if association is None:
            return
        address = association.address
        if self.flaw == "events from the present number":
            address = state.number
        counter = state.events[1] + 1
        yield (f"node: EVENT {counter}",
               self._put(state, ("EVENT", address, association.key, counter, state.resets)))

    # What comes

    def _take(self, state, frame):
        kind = frame[0]
        if kind == "ASK":
            yield f"node takes {_told(frame)}", self._take_ask(state, frame)
        elif kind == "REQUEST":
            yield f"node takes {_told(frame)}", self._take_request(state, frame)
        elif kind == "EVENT_ACK":
            yield f"node takes {_told(frame)}", self._take_acknowledgement(state, frame)
        else:
            for m in range(len(state.managers)):
                for after in self._take_answer(state, m, frame):
                    yield f"manager {m} takes {_told(frame)}", after

    def _take_ask(self, state, frame):
        _, number, nonce = frame
        if self.flaw == "ASK ends the association":
            if (association := state.open[number]) and association.key.manager != nonce:
                state = self._ended(state, number)
            state = state._replace(open=replaced(state.open, number, None))
        return self._put(state, ("CHALLENGE", number, state.offered[number], nonce))

    def _listens(self, state, address):
        """Whether the node takes frames to ``address``; the factory address stays for ever."""
        return address == state.number or (
            address == UNASSIGNED and self.flaw != "found by its number alone")

    def _take_request(self, state, frame):
        _, address, key, counter, operation = frame
        if not self._listens(state, address):
            return state
        number = self.numbers[operation.manager]
        now = state.open[number]
        if now is not None and now.key == key and now.address == address:
            if counter == now.counter + 1:
                return self._act(state, number, frame)
            if counter == now.counter and operation == now.request:
                if self.flaw == "answer made anew":
                    return self._put(state, self._answer(state, frame))
                return self._put(state, now.answer)
            if self.flaw not in ("one nonce for all", "no nonce of the manager"):
                return state
        offered = self.key(number, state.offered[number], key.manager)
        if counter != 1 or key != offered:
            return state
        if now is not None and self.flaw == "an association stays":
            return state
        if self.flaw != "nonce kept after use" and self.flaw != "one nonce for all":
            state = state._replace(
                offered=replaced(state.offered, number, state.drawn + 1), drawn=state.drawn + 1)
        return self._act(state, number, frame)

    def _act(self, state, number, frame):
        """The node does a request, and answers."""
        _, address, key, counter, operation = frame
        if operation.epoch >= state.epoch or self.flaw == "epoch not checked":
            if operation in state.acted:
                state = state._replace(fault="a request acts twice")
            elif any(done.manager == operation.manager and done.id > operation.id
                     for done in state.acted):
                state = state._replace(fault="a request acts after a newer one of its manager")
            elif operation.epoch < state.epoch:
                state = state._replace(fault="a manager that was deposed acts")
            state = state._replace(
                acted=(*state.acted, operation), epoch=max(state.epoch, operation.epoch),
                writer=number, number=operation.number or state.number)
        answer = self._answer(state, frame)
        return self._put(state, answer)._replace(open=replaced(
            state.open, number, Association(key, address, counter, operation, answer)))

    @staticmethod
    def _answer(state, frame):
        """An answer names the request, and the state of the node."""
        _, address, key, counter, operation = frame
        return ("ANSWER", address, key, counter, (operation.id, len(state.acted)))

    def _take_acknowledgement(self, state, frame):
        """Of an event: the node goes on to the next one."""
        _, address, key, counter = frame
        happened, done = state.events
        now = None if state.writer is None else state.open[state.writer]
        if now is None or (now.key, now.address) != (key, address):
            return state
        return state._replace(events=(happened, counter)) if counter == done + 1 else state

    def _take_answer(self, state, m, frame):
        """A frame to a manager: possible next states."""
        kind, now = frame[0], state.managers[m]
        if kind == "CHALLENGE":
            _, number, nonce, asked = frame
            if isinstance(now, int) and asked == self._own(m, now):
                key = self.key(number, nonce, asked)
                for address in {UNASSIGNED, state.number}:
                    yield self._with(state, m, Link(key, address))
        elif isinstance(now, Link) and (now.address, now.key) == frame[1:3]:
            counter, told = frame[3:]
            if kind == "EVENT":
                yield self._take_event(state, m, (told, counter), frame)
            elif counter == now.counter and now.waits:
                if now.waits.id != told[0]:
                    state = state._replace(fault="a manager takes the answer to another request")
                yield self._with(state, m, now._replace(waits=None))

    def _take_event(self, state, m, event, frame):
        """A manager takes new events, and acknowledges each."""
        now, taken = state.managers[m], state.taken[m]
        last = now.heard if self.flaw == "events without a number" else taken
        if event > last:
            if event <= taken:
                state = state._replace(fault="a manager takes an event twice")
            elif taken[1] and event[0] == taken[0] and event[1] > taken[1] + 1:
                state = state._replace(fault="a manager misses an event")
            state = state._replace(taken=replaced(state.taken, m, event))
        return self._put(self._with(state, m, now._replace(heard=max(last, event))),
                         ("EVENT_ACK", *frame[1:4]))

    # Strangers

    def _blind(self, state):
        """A stranger asks, and uses the answer."""
        knows = {MADE_UP}
        if self.flaw == "no knock":
            knows |= set(state.offered)
        for number, nonce in enumerate(state.offered):
            if nonce in knows:
                yield (f"stranger: REQUEST to manager number {number}",
                       state._replace(fault="a frame of a stranger costs a calculation"))

    def _sniffer(self, state):
        frames = self.wire.frames(state.wire)
        node = {MADE_UP} | {f[2] for f in frames if f[0] == "CHALLENGE"}
        asks = {f[2] for f in frames if f[0] == "ASK"}
        for number in set(self.numbers):
            for nonce in [*sorted(asks), (MADE_UP, MADE_UP)]:
                frame = ("ASK", number, nonce)
                yield f"stranger: {_told(frame)}", self._take_ask(state, frame)
        for m, now in enumerate(state.managers):
            if isinstance(now, int):
                for nonce in sorted(node):
                    frame = ("CHALLENGE", self.numbers[m], nonce, self._own(m, now))
                    for after in self._take_answer(state, m, frame):
                        yield f"stranger: {_told(frame)}", after

    # Helpers

    def _put(self, state, frame):
        """``frame`` is sent. Under a key no other frame may have the same nonce."""
        if state.fault is None and frame[0] in ("REQUEST", "ANSWER", "EVENT", "EVENT_ACK"):
            for other in self.wire.frames(state.wire):
                if (other[0] == frame[0] and other[2:4] == frame[2:4] and other != frame):
                    state = state._replace(fault=f"two {frame[0]}s have one key and nonce")
        return state._replace(wire=self.wire.put(state.wire, frame))

    @staticmethod
    def _with(state, m, link):
        return state._replace(managers=replaced(state.managers, m, link))

    @staticmethod
    def _ended(state, number):
        """Note the end of a working association."""
        now = state.open[number]
        if any(isinstance(link, Link) and link.key == now.key for link in state.managers):
            return state._replace(fault="an association that works ends without its manager")
        return state

    # Properties

    def wrong(self, state):
        if state.fault is None:
            if not self._way_back(state):
                return "no way back to an association"
            for number, link in zip(self.numbers, state.managers, strict=True):
                now = state.open[number]
                if (isinstance(link, Link) and now and (link.key, link.counter, link.waits)
                        == (now.key, now.counter, now.request)
                        and not self._listens(state, link.address)):
                    return "the answer to a request that acted cannot be had"
        return state.fault

    def _way_back(self, state):
        """Whether manager 0 alone, after a new start, gets an answer to a request."""
        number = self.numbers[0]
        now = state.open[number]
        known = self._ways_back.get((now is None, state.number))
        if known is None:
            calm = type(self)(self.flaw, numbers=self.numbers, epochs=self.epochs, operations=51,
                              restarts=0, resets=0)
            start = state._replace(managers=(None,) * len(self.numbers), wire=0, operations=50,
                                   nonces=(50,) * len(self.numbers), events=(0, 0))
            known = self._ways_back[now is None, state.number] = can_reach(
                calm, start, lambda s: isinstance(s.managers[0], Link) and s.managers[0].counter > 0
                and s.managers[0].waits is None)
        return known


def _told(frame):
    """Text of a frame in a trace."""
    kind, *told = frame
    match kind:
        case "ASK":
            return f"ASK(nonce {_nonce(told[1])})"
        case "CHALLENGE":
            return f"CHALLENGE(nonces {told[1]} and {_nonce(told[2])})"
        case "REQUEST":
            return f"REQUEST {told[3].id}(counter {told[2]})"
        case "ANSWER":
            return f"ANSWER {told[3][0]}(counter {told[2]})"
        case "EVENT":
            return f"EVENT {told[2]}"
    return f"EVENT_ACK {told[2]}"


def _nonce(nonce):
    m, number = nonce
    return "of a stranger" if m == MADE_UP else f"{number} of manager {m}"
