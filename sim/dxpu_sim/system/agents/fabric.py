"""What is between light nodes: sessions, and cards that a host sees."""

from functools import partial

from dxpu.fabric.session.session import Mode
from dxpu.management.format import Subject

from .node import BOX, HOST

__all__ = ["Fabric", "TenantError"]

#: Number of a node without a number.
_NONE = 0xFFF


class TenantError(AssertionError):
    """A host could read what another one has left in a GPU."""


class Fabric:
    """Light nodes that reach each other.

    After each change of a node its links are looked at: a card that goes is lost to its host until
    the row is bound again; a host that gets a card writes its memory. Whoever changes a card, or
    :attr:`cut`, calls :meth:`settle`.

    Parameters
    ----------
    agents : list of Agent

    Attributes
    ----------
    cut : set
        Pairs of agents that do not reach each other, as sets of their addresses.

    Raises
    ------
    TenantError
        From any change that gives a host what another one has written.
    """

    def __init__(self, agents):
        self.agents = list(agents)
        self.cut = set()
        self._places = {agent: n for n, agent in enumerate(self.agents)}
        #: Box, slot and generation of each card that a host sees, by host and port.
        self._linked = {}
        #: Agents by number; a number at the last change of each agent.
        self._named, self._numbers = {}, {}
        #: Hosts and ports whose rows are bound to a number; those numbers at the last change.
        self._bound, self._targets = {}, {}
        #: Links to be looked at again after the next change, as the last look has changed a node.
        self._again = set()
        for agent in self.agents:
            agent.fabric, agent.changed = self, partial(self._changed, agent)

    def settle(self):
        """Look at all links."""
        for agent in self.agents:
            self._index(agent)
        self._look({(host, port) for host in self.agents if host.role == HOST
                    for port in range(len(host.rows))}, self.agents)

    def _changed(self, agent):
        """Look at the links of an agent."""
        links, numbers = self._again, {agent.number, self._numbers.get(agent, _NONE)}
        self._again = set()
        if agent.role == HOST:
            links |= {(agent, port) for port in range(len(agent.rows))}
        self._index(agent)
        # Both its old number and the new one may be another agent's too.
        for number in numbers - {_NONE}:
            links |= self._bound.get(number, set())
        self._look(links, [agent])

    def _index(self, agent):
        """Keep where an agent, and those that it is bound to, are found."""
        old, new = self._numbers.get(agent, _NONE), agent.number
        if old != new:
            self._named.get(old, set()).discard(agent)
            self._numbers[agent] = new
            if new != _NONE:
                self._named.setdefault(new, set()).add(agent)
        if agent.role != HOST:
            return
        targets = {port: row.node for port, row in enumerate(agent.rows) if row.used}
        before = self._targets.get(agent, {})
        if targets != before:
            for port, number in before.items():
                self._bound[number].discard((agent, port))
            for port, number in targets.items():
                self._bound.setdefault(number, set()).add((agent, port))
            self._targets[agent] = targets

    def _look(self, links, agents):
        """Look at links, and let agents tell what is new, as well as hosts of changed links."""
        came, touched = [], {*agents}
        for host, port in sorted(links, key=lambda link: (self._places[link[0]], link[1])):
            row, before = host.rows[port], self._linked.get((host, port))
            card = self._card(host, port) if row.used else None
            now = None if card is None else (*card, row.generation)
            if now == before:
                continue
            touched.add(host)
            if now is not None:
                self._linked[host, port] = now
                came.append((host, *card))
                continue
            del self._linked[host, port]
            if row.used and row.generation == before[2]:
                host.lose(port)
        for host, box, slot in came:
            self._used(host, box, slot)
        for agent in sorted(touched, key=self._places.__getitem__):
            self._tell(agent)

    def _used(self, host, box, slot):
        card = box.cards[slot]
        maintains = box._word("control.scrub", "maintainer") == host.number
        if card.wrote not in (0, host.number) and not maintains:
            raise TenantError(f"host {host.number:#05x} reads what node {card.wrote:#05x} left in "
                              f"slot {slot} of {box.number:#05x}")
        if not card.wipes:
            self._again |= self._bound.get(box.number, set())
        box.used_by(slot, host.number)

    def _tell(self, agent):
        if agent.number == _NONE:
            return
        for path in range(agent.shape.paths):
            agent.tell(Subject.PATH, path, agent.links >> path & 1)
        for n, row in enumerate(agent.rows):
            if agent.role == HOST:
                linked = (agent, n) in self._linked
                argument = (row.used | linked << 1 | (linked and agent.software.powered) << 2
                            | agent.has_lost(n) << 3)
            else:
                argument = row.used | (n + 1 in agent.cards) << 1
            agent.tell(Subject.SLOT, n, argument)

    def _numbered(self, number):
        """The first agent with a number."""
        return min(self._named.get(number, ()), key=self._places.__getitem__, default=None)

    def reaches(self, one, other):
        """Whether frames pass between two agents, on any path."""
        return frozenset((one.mac, other.mac)) not in self.cut and bool(one.links & other.links)

    def is_open(self, agent, peer, stream):
        """Whether a session of an agent is open: both ends want it, and have one key."""
        here = agent._state.peers[peer]
        other = self._numbered(here.node) if here.valid else None
        if other is None or not self.reaches(agent, other) or not (agent.boot and other.boot):
            return False
        n, there = other.peer_of(agent.number)
        if there is None or agent.role == other.role or there.clear != here.clear:
            return False
        if not here.clear and not {here.key, here.next} & {there.key, there.next} - {b""}:
            return False
        host, box = ((agent, peer), (other, n)) if agent.role == HOST else ((other, n),
                                                                          (agent, peer))
        return (host[0].mode(host[1], stream), box[0].mode(box[1], stream)) == (
            Mode.OPENS.value, Mode.ANSWERS.value)

    def _card(self, host, port):
        """Box and slot of the card that a host sees, if there is one."""
        row = host.rows[port]
        box = self._numbered(row.node)
        if box is None or box.role != BOX or host.has_lost(port):
            return None
        n, _ = host.peer_of(row.node)
        card = box.cards.get(row.slot)
        if n is None or card is None or not card.works or not self.is_open(host, n, row.stream):
            return None
        there = box.rows[row.slot - 1]
        if not there.used or (there.node, there.stream, there.generation) != (
                host.number, row.stream, row.generation) or box.is_held(row.slot, host.number):
            return None
        alive = host.links & box.links
        if host.way(row, alive) is None or box.way(there, alive) is None:
            return None
        return box, row.slot

    def is_linked(self, host, port):
        """Whether a host sees the card of a port."""
        return (host, port) in self._linked

    def cards_of(self, host):
        """Box and slot of each card that a host sees."""
        return {(box, slot) for (other, _), (box, slot, _) in self._linked.items()
                if other is host}
