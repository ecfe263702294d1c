"""What both proxies have: MACs below the fabric engine, registers beside it."""

from amaranth import *
from amaranth.lib import wiring

from ..csr import CounterBank, RegisterFile, RegisterMux, connect_ports
from ..ethernet import Mac
from ..stream import connect
from .registers import address_map

__all__ = ["ProxyRegisters", "attach_engine", "connect_macs", "make_macs", "stats_of"]


class ProxyRegisters:
    """Register map, decoder and counters of a proxy, collected while it is wired.

    Parameters
    ----------
    role : "host" or "box"
    shape : dict
        ``rows``, ``paths``, ``sessions``, ``width``.
    """

    def __init__(self, role, counters, **shape):
        self.map = address_map(role, counters=counters, **shape)
        self.file = RegisterFile(self.map.blocks["control"][1])
        self.bank = CounterBank(self.map.blocks["counters"][1])
        self._mux = RegisterMux(self.map.windows)

    def wire(self, m, bus, table_bus, pulses):
        """Connect ``bus`` to all blocks, and ``pulses`` (name to signal) to the counters."""
        m.submodules.register_mux = mux = self._mux
        m.submodules.registers = self.file
        m.submodules.counters = self.bank
        connect_ports(m, wiring.flipped(bus), mux.bus)
        connect_ports(m, mux.control, self.file.bus)
        connect_ports(m, mux.counters, self.bank.bus)
        connect_ports(m, mux.table, table_bus)
        m.d.comb += [getattr(self.bank.pulse, name).eq(signal) for name, signal in pulses.items()]


def stats_of(prefix, part):
    """Counter pulses of a component: name (with ``prefix``) to signal."""
    return {f"{prefix}{name.removeprefix('stat_')}": getattr(part, name)
            for name in part.signature.members if name.startswith("stat_")}


def connect_macs(m, macs, engine, gmii):
    """One MAC per path, between the engine's frames and the proxy's GMII ports."""
    for n, mac in enumerate(macs):
        m.submodules[f"mac{n}"] = mac
        connect(m, engine.frame_o[n], mac.i)
        connect(m, mac.o, engine.frame_i[n])
        wiring.connect(m, wiring.flipped(gmii[n]), mac.gmii)


def attach_engine(m, engine, file):
    """Set the engine up from the control registers, and show its state in them."""
    m.d.comb += [
        engine.node.eq(file.node.number),
        engine.ack_delay.eq(file.fabric.ack_delay),
        engine.packing_limit.eq(file.fabric.packing_limit),
        engine.retry_wait.eq(file.retry.wait),
    ]
    for n, registers in enumerate(file.session):
        session, state = engine.sessions[n], engine.state[n]
        m.d.comb += [
            session.valid.eq(registers.peer.valid),
            session.node.eq(registers.peer.node),
            session.stream.eq(registers.peer.stream),
            session.tx_tag.eq(registers.tags.tx),
            session.rx_tag.eq(registers.tags.rx),
            engine.reopen[n].eq(registers.open.strobe),
            registers.seq.value.eq(state.seq),
            registers.next.value.eq(state.next),
            registers.acked.value.eq(state.acked),
            registers.state.unacked.eq(engine.unacked[n]),
            registers.state.path.eq(engine.path[n]),
            registers.state.failed.eq(engine.failed[n]),
        ]


def make_macs(width, paths):
    """MACs of a proxy; path n is in the clock domains ``gmii<n>_rx`` and ``gmii<n>_tx``."""
    return [Mac(width, rx_domain=f"gmii{n}_rx", tx_domain=f"gmii{n}_tx") for n in range(paths)]
