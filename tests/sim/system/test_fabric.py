"""dxpu_sim.system.agents.fabric: the links of a changed node are all that can have changed."""

import random

import pytest

from dxpu.management.format import Subject
from dxpu_sim.system.agents import BOX, HOST, Agent, Card, Fabric, Shape
from dxpu_sim.system.agents.fabric import TenantError
from tests.sim.system.test_agents import field
from tests.support.testbench import seed

SHAPE = Shape(rows=2, peers=3, streams=1)
HOSTS, BOXES = (1, 2, 3), (0x801, 0x802)


class Plain(Fabric):
    """Looks at all links after each change, and keeps nothing but what was linked."""

    def _changed(self, agent):
        self.settle()

    def settle(self):
        linked = {}
        for host in self.agents:
            if host.role == HOST:
                for port, row in enumerate(host.rows):
                    if row.used and (card := self._card(host, port)) is not None:
                        linked[host, port] = (*card, row.generation)
        before, self._linked = self._linked, linked
        for (host, port), (_, _, generation) in before.items():
            row = host.rows[port]
            if (host, port) not in linked and row.used and row.generation == generation:
                host.lose(port)
        for (host, port), (box, slot, _) in linked.items():
            if before.get((host, port)) != linked[host, port]:
                self._used(host, box, slot)
        for agent in self.agents:
            self._tell(agent)

    def _numbered(self, number):
        return next((agent for agent in self.agents if agent.number == number != 0xFFF), None)


class World:
    """Three hosts and two boxes under random commands."""

    def __init__(self, fabric):
        self.agents = [self._agent(HOST, n) for n in HOSTS]
        self.agents += [self._agent(BOX, n, {1: Card(), 2: Card(wipes=False)}) for n in BOXES]
        self.fabric = fabric(self.agents)

    def _agent(self, role, number, cards=None):
        return Agent(role, mac=number.to_bytes(6, "big"), serial=number, key=bytes(16),
                     shape=SHAPE, cards=cards)

    def do(self, act, n, *what):
        agent = self.agents[n]
        match act:
            case "write":
                path, fields = what
                agent.write(*field(agent, path, **fields))
            case "reset":
                agent.reset()
            case "card":
                self._card(agent, *what)
            case "wipe":
                for slot in agent.dirty:
                    agent.wipe(slot)
                self.fabric.settle()
            case "cut":
                self.fabric.cut ^= {frozenset((agent.mac, self.agents[what[0]].mac))}
                self.fabric.settle()

    def _card(self, box, slot, works):
        if slot not in box.cards:
            box.plug(slot, Card(wipes=slot == 1))
            return
        if works is None:
            del box.cards[slot]
        else:
            box.cards[slot].works = works
        self.fabric.settle()

    def state(self):
        """All that can be seen of it."""
        return [(sorted((box.serial, slot) for box, slot in self.fabric.cards_of(agent)),
                 [agent.has_lost(row) for row in range(SHAPE.rows)], agent.rows, agent.dirty,
                 {slot: card.wrote for slot, card in agent.cards.items()},
                 [agent._state.told.get(Subject.SLOT << 8 | row) for row in range(SHAPE.rows)])
                for agent in self.agents]


def numbers(rng, role):
    return rng.choice(HOSTS if role == HOST else BOXES)


def set_up(rng):
    """What lets links come up: numbers, boot counters, peers, sessions; now and then a wrong one.
    """
    for n, number in enumerate((*HOSTS, *BOXES)):
        yield "write", n, "control.node", {"number": rng.choice((number,) * 9 + (HOSTS[0], 0xFFF))}
        yield "write", n, "control.boot", {"counter": 1}
        for peer, other in enumerate(BOXES if n < 3 else HOSTS):
            yield "write", n, f"control.peer[{peer}].node", {
                "number": other, "valid": rng.random() < 0.95, "clear": rng.random() < 0.95}
            yield "write", n, f"control.session[{peer}].mode", {"opener": 1 if n < 3 else 2}


def bind(rng, agents, used):
    """A random binding, or the release of one, of which a row is sometimes left out."""
    place = rng.randrange(3), rng.randrange(3, 5), rng.randrange(2), rng.choice((1, 2))
    bound = [(h, BOXES.index(row.node) + 3, p, row.slot) for h in range(3)
             for p, row in enumerate(agents[h].rows) if row.used]
    both = rows(agents, *(rng.choice(bound) if bound and not used else place), used)
    rng.shuffle(both)
    return [act for acts in both[:rng.choice((1, 2, 2, 2, 2, 2))] for act in acts]


def rows(agents, host, box, port, slot, used):
    """Commands for both rows of a binding."""
    generation = used + max(agents[host].rows[port].generation,
                            agents[box].rows[slot - 1].generation)
    return [[("write", n, path, fields) for path, fields in (
        ("table.operation_id", {"value": 1 + generation * 2 + used}),
        ("table.target", {"node": node, "slot": slot, "stream": 0}),
        ("table.paths", {"mask": 1}),
        ("table.commit", {"row": row, "used": int(used), "generation": generation}))]
        for n, row, node in ((box, slot - 1, HOSTS[host]), (host, port, BOXES[box - 3]))]


def hand_over(rng, agents):
    """A GPU that keeps its memory goes from a host to the next one."""
    for host in rng.sample(range(3), 2):
        for used in (True, False):
            yield from (act for acts in rows(agents, host, 3, 0, 2, used) for act in acts)


def acts(rng, agents):
    """Some acts that belong together."""
    n = rng.randrange(5)
    match rng.choice((*("bind",) * 6, *("release",) * 4, *("set up",) * 5, *("hand over",) * 2,
                      "reset", "card", "wipe", "cut", "scrub", "peer", "number", "detach")):
        case "hand over":
            return hand_over(rng, agents)
        case "set up":
            return list(set_up(rng))
        case "bind":
            return bind(rng, agents, True)
        case "release":
            return bind(rng, agents, False)
        case "reset":
            return [("reset", n)]
        case "card":
            return [("card", rng.randrange(3, 5), rng.choice((1, 2)),
                     rng.choice((True, True, False, None)))]
        case "wipe":
            return [("wipe", rng.randrange(3, 5))]
        case "cut":
            return [("cut", rng.randrange(3), rng.randrange(3, 5))]
        case "scrub":
            return [("write", rng.randrange(3, 5), "control.scrub",
                     {"hold": rng.choice((0, 3, 3)), "maintainer": rng.choice((0, *HOSTS))})]
        case "peer":
            return [("write", n, f"control.peer[{rng.randrange(3)}].node",
                     {"number": numbers(rng, BOX if n < 3 else HOST), "valid": 1, "clear": 1})]
        case "number":
            return [("write", n, "control.node", {"number": rng.choice((*HOSTS, *BOXES, 0xFFF))})]
        case _:
            return [("write", rng.randrange(3), "control.detach", {"ports": rng.randrange(4)})]


@pytest.mark.parametrize("lives", [60, pytest.param(3000, marks=pytest.mark.long)])
def test_both_looks_find_the_same(lives):
    """Whatever changes, in whatever order, errors included."""
    rng, seen, refused = random.Random(seed()), set(), 0
    for _ in range(lives):
        worlds = World(Fabric), World(Plain)
        for n in range(40):
            errors = []
            for act in acts(rng, worlds[0].agents) if n else set_up(rng):
                for world in worlds:
                    try:
                        world.do(*act)
                    except TenantError as error:
                        errors.append(str(error))
                if errors:
                    break
            if errors:
                assert len(errors) == 2 and errors[0] == errors[1], act
                refused += 1
                break
            mine, plain = (world.state() for world in worlds)
            assert mine == plain, act
            seen |= {len(links) for links, *_ in plain}
    assert seen == {0, 1, 2} and refused
