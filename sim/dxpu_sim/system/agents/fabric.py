"""What is between light nodes: sessions, and cards that a host sees."""

from dxpu.fabric.session.session import Mode
from dxpu.management.format import Subject

from .node import BOX, HOST

__all__ = ["Fabric", "TenantError"]


class TenantError(AssertionError):
    """A host could read what another one has left in a GPU."""


class Fabric:
    """Light nodes that reach each other.

    After each change of a node all links are looked at: a card that goes is lost to its host until
    the row is bound again; a host that gets a card writes its memory.

    Parameters
    ----------
    agents : list of Agent

    Raises
    ------
    TenantError
        From any change that gives a host what another one has written.
    """

    def __init__(self, agents):
        self.agents = list(agents)
        #: Pairs of agents that do not reach each other, as sets of their addresses.
        self.cut = set()
        self._linked = {}
        for agent in self.agents:
            agent.fabric, agent.changed = self, self.settle

    def settle(self):
        """Look at all links."""
        linked = {}
        for host in self.agents:
            if host.role != HOST:
                continue
            for port, row in enumerate(host.rows):
                if row.used and (card := self._card(host, port)) is not None:
                    linked[host.mac, port] = card, row.generation
        before, self._linked = self._linked, linked
        for (mac, port), (_, generation) in before.items():
            if (mac, port) not in linked:
                host = self._at(mac)
                row = host.rows[port]
                if row.used and row.generation == generation:
                    host.lose(port)
        for (mac, port), ((box, slot), _) in linked.items():
            if before.get((mac, port)) == linked[mac, port]:
                continue
            host, card = self._at(mac), box.cards[slot]
            if card.wrote not in (0, host.number) and not self._maintains(box, host):
                raise TenantError(f"host {host.number:#05x} reads what node {card.wrote:#05x} "
                                  f"left in slot {slot} of {box.number:#05x}")
            box.used_by(slot, host.number)
        self._tell()

    def _maintains(self, box, host):
        return box._word("control.scrub", "maintainer") == host.number

    def _tell(self):
        for agent in self.agents:
            if agent.number == 0xFFF:
                continue
            for n, row in enumerate(agent.rows):
                if agent.role == HOST:
                    linked = (agent.mac, n) in self._linked
                    argument = row.used | linked << 1 | linked << 2 | agent.has_lost(n) << 3
                else:
                    argument = row.used | (n + 1 in agent.cards) << 1
                agent.tell(Subject.SLOT, n, argument)

    def _at(self, mac):
        return next(agent for agent in self.agents if agent.mac == mac)

    def _numbered(self, number):
        return next((agent for agent in self.agents if agent.number == number != 0xFFF), None)

    def reaches(self, one, other):
        """Whether frames pass between two agents."""
        return frozenset((one.mac, other.mac)) not in self.cut

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
        return box, row.slot

    def is_linked(self, host, port):
        """Whether a host sees the card of a port."""
        return (host.mac, port) in self._linked
