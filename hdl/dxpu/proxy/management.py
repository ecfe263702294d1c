"""Management by frames: what a proxy has beside its engine for it.

Ref: docs/reference/management.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from dxpu.csr import RegisterArbiter, RegisterPort, connect_ports
from dxpu.fabric.wire.frame_fields import wire
from dxpu.management.junction import ManagementJunction
from dxpu.management.operations import Directory
from dxpu.stream import connect as connect_streams

__all__ = ["FactoryPort", "RandomShare", "attach_management", "connect_managed_frames",
           "directory_of", "management_ports"]


class FactoryPort(wiring.Signature):
    """What a node was given when it was made, seen from the proxy.

    Members
    -------
    valid, keyed : In(1)
        The others are as they stay; and there is a key.
    mac, serial, build : In(48), In(32), In(32)
        MAC address, first byte uppermost; serial number; identity of the build.
    column, key_column : Out(2), In(32)
        That column of the node's key, in the same cycle: bytes 4n to 4n + 3, the first one in the
        lowest bits.
    """

    def __init__(self):
        super().__init__({"valid": In(1), "keyed": In(1), "mac": In(48), "serial": In(32),
                          "build": In(32), "column": Out(2), "key_column": In(32)})


class RandomShare(wiring.Component):
    """Gives each random word to one of two parts, and keeps one for each, so that neither waits for
    the other. A word is offered a cycle after it came.

    Members
    -------
    i : stream of 32
    o : array of two streams of 32
        Each word is in one of them.
    """

    def __init__(self):
        words = stream.Signature(32)
        super().__init__({"i": In(words), "o": Out(words).array(2)})

    def elaborate(self, platform):
        m = Module()
        free = [Signal(name=f"free{n}") for n in range(2)]
        m.d.comb += self.i.ready.eq(free[0] | free[1])
        for n, o in enumerate(self.o):
            m.d.comb += free[n].eq(~o.valid)
            with m.If(o.valid & o.ready):
                m.d.sync += o.valid.eq(0)
            with m.If(self.i.valid & free[n] & ~(free[0] if n else C(0))):
                m.d.sync += [o.valid.eq(1), o.payload.eq(self.i.payload)]
        return m


def directory_of(map):
    """The :class:`~dxpu.management.operations.Directory` of a register map."""
    return Directory({base + placed.address: placed.register.writable
                      for base, block in map.blocks.values() for placed in block.placed},
                     map.address("table.fence_epoch"))


def connect_managed_frames(m, engine, frame, unit):
    """As :func:`~.common.connect_frames`, with frames of management beside those of the engine."""
    for n, (source, sink, port, path, tap) in enumerate(zip(
            engine.frame_o, engine.frame_i, frame, unit.path_o, unit.taps, strict=True)):
        junction = ManagementJunction(source.payload.shape().width)
        m.submodules[f"junction{n}"] = junction
        connect_streams(m, source, junction.fabric)
        connect_streams(m, path, junction.management)
        connect_streams(m, junction.o, flipped(port.tx))
        connect_streams(m, flipped(port.rx), sink)
        m.d.comb += [tap.valid.eq(port.rx.valid & sink.ready), tap.beat.eq(port.rx.payload)]
    m.d.comb += engine.links.eq(Cat(port.link_up for port in frame))


def attach_management(m, proxy, engine, file, unit, events, *, slots):
    """Connect a unit of management, and the ``events`` of the node, to the ``file`` of control
    registers and to the port ``factory`` of ``proxy``; ``slots`` are the values of
    :class:`~dxpu.management.events.SlotState` of each row.

    Returns the register port for the proxy's registers: those who use its port ``bus``, and the
    unit, in turn. If the proxy has a port ``manager_bus``, the unit is there.
    """
    m.submodules.management, m.submodules.management_events = unit, events
    connect_streams(m, events.o, unit.event)
    m.d.comb += [events.links.eq(engine.links), events.news.eq(engine.session_news),
                 events.failed.eq(file.security.noise_failed)]
    for state, values in zip(events.slots, slots, strict=True):
        m.d.comb += [getattr(state, name).eq(value) for name, value in values.items()]
    bus = flipped(proxy.bus)
    if "manager_bus" in proxy.signature.members:
        connect_ports(m, unit.bus, flipped(proxy.manager_bus))
    else:
        m.submodules.masters = masters = RegisterArbiter(2)
        connect_ports(m, bus, masters.i[0])
        connect_ports(m, unit.bus, masters.i[1])
        bus = masters.o
    hello, cycles = engine.local_hello, Signal(6)
    m.d.sync += cycles.eq(cycles + 1)
    factory = flipped(proxy.factory)
    said = Cat(
        wire(factory.mac, 6), wire(file.node.number, 2), wire(factory.serial, 4),
        wire(hello.role, 1), wire(hello.slots, 1), wire(hello.capabilities, 2),
        wire(hello.boot, 2), wire(engine.links[:8], 1), C(0, 8), wire(
            Cat(values["present"] for values in slots), 4),
        wire(factory.build, 4), wire(hello.table, 4))
    m.d.comb += [
        unit.tick.eq(cycles == 0), unit.node.eq(file.node.number), unit.mac.eq(factory.mac),
        unit.addressed.eq(factory.valid),
        unit.enable.eq(factory.valid & factory.keyed), unit.identity.eq(said),
        factory.column.eq(unit.column), unit.key_column.eq(factory.key_column),
    ]
    return bus


def management_ports(managed, keys, around):
    """Ports of a proxy for its unit of management, if there is one.

    Raises
    ------
    ValueError
        If the proxy may have none.
    """
    if managed and not keys:
        raise ValueError("managed needs keys: management has the cipher of the sessions")
    if around is not None and not managed:
        raise ValueError("registers around a proxy are for its managers: around needs managed")
    return {**({"factory": Out(FactoryPort())} if managed else {}),
            **({"manager_bus": Out(RegisterPort())} if around is not None else {})}
