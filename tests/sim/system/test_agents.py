"""dxpu_sim.system.agents: light nodes answer as the gateware does."""

import random

import pytest
from amaranth import Module

from dxpu_sim.system.agents import BOX, HOST, Agent, Card, Fabric, Shape, Software
from dxpu_sim.system.agents.fabric import TenantError
from tests.support.manager_bench import SimulatedRegisters
from tests.support.proxy_port import only_table
from tests.support.testbench import seed

SHAPE = Shape(rows=3, paths=2, peers=2, streams=2)
COMMANDS = 400


def both(role):
    """Registers of the gateware's table and of a light node, by the same names."""
    name = {HOST: "host", BOX: "box"}[role]
    port, _ = only_table(Module(), name, rows=3, paths=2, peers=2, streams=2)
    gateware = SimulatedRegisters(port)
    cards = {1: Card(), 3: Card()} if role == BOX else {}
    return gateware, Agent(role, mac=bytes(6), serial=1, key=bytes(16), shape=SHAPE, cards=cards)


def field(registers, path, **fields):
    """Address and word of a register, by the map of either."""
    placed, base = registers.map.find(path)
    names = {known.name for known in placed.register.fields}
    word = placed.register.pack(**{name: fields[name] for name in fields if name in names})
    return base + placed.address, word


@pytest.mark.parametrize("role", [HOST, BOX])
def test_commands_have_the_same_results(role):
    """Random ones, most of them near the row's generation; with changes of the epoch."""
    gateware, agent = both(role)
    rng, codes = random.Random(seed()), set()
    for _ in range(COMMANDS):
        row = rng.choice((0, 0, 1, 2, 3, 40))
        held = agent.rows[row if row < 3 else 0]
        target = {"node": rng.choice((held.node, 1, 2, 1, 2, 0, 0xFFF)),
                  "slot": rng.choice((held.slot, 1, 1, 2, 0)), "stream": rng.choice((0, 1, 0, 2))}
        wanted = [
            ("table.operation_id", {"value": rng.choice((held.operation, rng.getrandbits(32)))}),
            ("table.target", target), ("table.paths", {"mask": rng.choice((1, 1, 2, 3, 0, 4))}),
            ("table.epoch", {"value": agent.epoch + rng.choice((-1, 0, 0, 0, 1)) & 0xFFFF_FFFF}),
            ("table.commit", {"row": row, "used": rng.getrandbits(1), "generation":
                              held.generation + rng.choice((-1, 0, 1, 1, 2, 0x8000)) & 0xFFFF}),
        ]
        if rng.random() < 0.05:
            wanted.insert(0, ("table.fence_epoch", {"value": agent.epoch + rng.choice((-1, 1))
                                                    & 0xFFFF_FFFF}))
        for path, fields in wanted:
            gateware.write(*field(gateware, path, **fields))
            agent.write(*field(agent, path, **fields))
        for path in ("table.result", "table.result_operation_id", "table.fence_epoch", *(
                f"table.row[{n}].{name}" for n in range(3)
                for name in ("state", "binding", "operation_id"))):
            ours, theirs = (read(registers, path) for registers in (agent, gateware))
            # The gateware's table has no slots with cards here.
            ours.pop("valid", None), theirs.pop("valid", None)
            assert ours == theirs, (path, wanted)
        codes.add(read(agent, "table.result")["code"])
    # All but NONE, and DRAINING, which a table alone has not.
    assert codes == set(range(1, 8))


def read(registers, path):
    """Fields of a register."""
    placed, base = registers.map.find(path)
    return placed.register.unpack(registers.read(base + placed.address))


WINDOWS = ("bus", *(f"{name}_{end}" for name in ("memory", "io") for end in ("base", "limit")),
           *(f"prefetch_{end}_{half}" for end in ("base", "limit") for half in ("low", "high")))


@pytest.mark.parametrize("software", [
    {"powered": False}, {"enumerates": False}, {"leaves_room": False}, {}])
def test_windows_are_those_that_the_gateware_shows(software):
    """The same configuration writes, to the gateware's table and as a light host's software says:
    a port that nobody has set up, one without room, and one with windows."""
    port, table = only_table(Module(), "host", rows=3, paths=2, peers=2, streams=2)
    gateware = SimulatedRegisters(port)
    agent = Agent(HOST, mac=bytes(6), serial=1, key=bytes(16), shape=SHAPE)
    agent.software = Software(**software)
    bus, room = not {"powered", "enumerates"} & set(software), "leaves_room" not in software
    for n in range(3):
        # 32 MiB from 2 GiB on, 64 GiB from 64 TiB on; or bases above their limits.
        first, wide = 0x8000_0000 + (n << 25), (64 << 40) + (n << 36)
        writes = {0x04: 2 if room else 0, 0x18: (2 + n) << 8 | (2 + n) << 16,
                  0x1c: 0x0010, 0x30: 0, 0x20: 0x0010, 0x24: 0x0010, 0x28: 0, 0x2c: 0}
        if room:
            writes |= {0x20: first >> 16 | (first + (31 << 20)) & 0xFFF0_0000,
                       0x24: wide >> 16 & 0xFFF0 | (wide + (63 << 30) + 0x3FF0_0000) & 0xFFF0_0000,
                       0x28: wide >> 32, 0x2c: wide + (63 << 30) >> 32}
        for offset, value in writes.items() if bus else ():
            port.inputs = [(table.config.function, n + 1), (table.config.register, offset // 4),
                           (table.config.value, value), (table.config.strobe, 1)]
            gateware.read(0)
        port.inputs = [(table.config.strobe, 0)]
    for n in range(3):
        for name in WINDOWS:
            path = f"table.row[{n}].{name}"
            assert read(agent, path) == read(gateware, path), path


def bind(agent, row, node, slot, generation):
    """Give a command to a table."""
    for path, fields in (
            ("table.operation_id", {"value": agent.rows[row].operation + 1}),
            ("table.target", {"node": node, "slot": slot}), ("table.paths", {"mask": 1}),
            ("table.commit", {"row": row, "used": int(node > 0), "generation": generation})):
        agent.write(*field(agent, path, **fields))
    assert read(agent, "table.result")["code"] == 1


def test_a_host_never_gets_what_another_left(monkeypatch):
    """The hold of a slot keeps it closed; without the hold that is an error of the test's system,
    so that no test can overlook it."""
    hosts = [Agent(HOST, mac=bytes((n,) * 6), serial=n, key=bytes(16), shape=SHAPE)
             for n in (1, 2)]
    box = Agent(BOX, mac=bytes((3,) * 6), serial=3, key=bytes(16), shape=SHAPE,
                cards={1: Card(wipes=False)})
    fabric = Fabric([*hosts, box])
    box.wipe(1)
    for n, agent in enumerate((*hosts, box), 1):
        agent.write(*field(agent, "control.node", number=n))
        agent.write(*field(agent, "control.boot", counter=1))
    for n, (host, mode) in enumerate(((hosts[0], 1), (hosts[1], 1))):
        for agent, place, peer, opener in ((host, 0, 3, mode), (box, n, n + 1, 2)):
            agent.write(*field(agent, f"control.peer[{place}].node", number=peer, valid=1, clear=1))
            agent.write(*field(agent, f"control.session[{2 * place}].mode", opener=opener))
    bind(box, 0, 1, 1, 1)
    bind(hosts[0], 0, 3, 1, 1)
    assert fabric.is_linked(hosts[0], 0) and box.dirty == [1]
    bind(hosts[0], 0, 0, 1, 1)
    bind(box, 0, 0, 1, 1)
    bind(box, 0, 2, 1, 2)
    bind(hosts[1], 0, 3, 1, 2)
    assert not fabric.is_linked(hosts[1], 0)
    with pytest.raises(TenantError, match="^host 0x002 reads what node 0x001 left in slot 1 of "):
        box.write(*field(box, "control.scrub", hold=0))
    # Wiped, it is the second host's.
    box.write(*field(box, "control.scrub", hold=7, maintainer=2))
    box.write(*field(box, "control.dirty", slots=1))
    box.write(*field(box, "control.scrub", hold=7, maintainer=0))
    bind(hosts[1], 0, 0, 1, 2)
    bind(hosts[1], 0, 3, 1, 3)
