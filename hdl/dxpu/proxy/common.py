"""What both proxies have: frame ports below the fabric engine, registers beside it."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.utils import exact_log2

from dxpu.counted import texts_of
from dxpu.csr import CounterBank, RegisterFile, RegisterMux, connect_ports
from dxpu.fabric.receive.types import TLP_DWORDS
from dxpu.fabric.session.types import SettingKind
from dxpu.fabric.wire.format import (
    CREDIT_BYTES, HEADER_BYTES, RECORD_CRC_BYTES, ArqMode, Capability, SecurityMode,
)
from dxpu.stream import connect

from .registers import address_map

__all__ = ["CounterList", "ProxyRegisters", "attach_engine", "connect_frames"]


#: Bytes of the largest frame: one with a single TLP of most size.
LARGEST_FRAME = HEADER_BYTES + CREDIT_BYTES + 4 * TLP_DWORDS + RECORD_CRC_BYTES


class ProxyRegisters:
    """Register map, decoder and counters of a proxy.

    Parameters
    ----------
    role : "host" or "box"
        Kind of the proxy.
    counters : :class:`CounterList`
        Its counters.
    shape : dict
        Options of :func:`~.registers.address_map`.
    """

    def __init__(self, role, counters, **shape):
        self.pulses = counters.pulses
        self.map = address_map(role, counters=counters.texts, **shape)
        self.file = RegisterFile(self.map.blocks["control"][1])
        self.bank = CounterBank(self.map.blocks["counters"][1])
        #: What is observed, if anything is: blocks `observe` and `stages`.
        self.observed = {name: RegisterFile(self.map.blocks[name][1])
                         for name in ("observe", "stages") if name in self.map.blocks}
        self._mux = RegisterMux(self.map.windows)

    def wire(self, m, bus, table_bus):
        """Connect ``bus``, seen from the master, to all blocks, and the pulses to the counters."""
        m.submodules.register_mux = mux = self._mux
        m.submodules.registers = self.file
        m.submodules.counters = self.bank
        connect_ports(m, bus, mux.bus)
        connect_ports(m, mux.control, self.file.bus)
        connect_ports(m, mux.counters, self.bank.bus)
        connect_ports(m, mux.table, table_bus)
        for name, file in self.observed.items():
            m.submodules[name] = file
            connect_ports(m, getattr(mux, name), file.bus)
        m.d.comb += [getattr(self.bank.pulse, name).eq(signal)
                     for name, signal in self.pulses.items()]


class CounterList:
    """Counters of a proxy, in the order of their registers: name to pulse, name to text."""

    def __init__(self):
        self.pulses, self.texts = {}, {}

    def add(self, name, pulse, text):
        """Add a counter."""
        self.pulses[name], self.texts[name] = pulse, text

    def add_all(self, prefix, part, **words):
        """Add counters for all counted pulses of a component, with ``prefix`` before their names.

        ``words`` are those of :func:`~dxpu.counted.texts_of`.
        """
        for name, text in texts_of(part, **words).items():
            self.add(f"{prefix}{name}", getattr(part, f"stat_{name}"), text)


def connect_frames(m, engine, frame):
    """Connect the frames of the engine, and the links of paths, to the frame ports of the core."""
    for source, sink, port in zip(engine.frame_o, engine.frame_i, frame, strict=True):
        connect(m, source, wiring.flipped(port.tx))
        connect(m, wiring.flipped(port.rx), sink)
    m.d.comb += engine.links.eq(Cat(port.link_up for port in frame))


def attach_engine(m, engine, file, *, role, commits, managed=False):
    """Connect the control registers to the engine.

    ``role`` is the role in HELLO, ``commits`` a strobe for each change of the mapping table;
    ``managed``: there is a unit of management.
    """
    table = Signal(32)
    m.d.sync += table.eq(table + commits)
    # HELLO has microseconds: a unit of 64 cycles counts as 500 ns.
    wait, hello = file.retry.wait >> 1, engine.local_hello
    tries, give_up = (wait * 15) * len(engine.frame_o), Signal(16, reset_less=True)
    # A product is half a cycle, and the field goes through the cipher.
    m.d.sync += give_up.eq(Mux(tries >> 16, 0xFFFF, tries))
    selective = engine.arq == "selective"
    m.d.comb += [
        engine.boot.eq(file.boot.counter),
        engine.hello_wait.eq(file.hello.wait),
        engine.quiet.eq(file.quiet.time),
        hello.role.eq(role),
        hello.slots.eq(len(engine.open)),
        hello.arq.eq(ArqMode.SELECTIVE_REPEAT if selective else ArqMode.GO_BACK_N),
        hello.security.eq(SecurityMode.NONE),
        hello.largest.eq(LARGEST_FRAME),
        hello.window.eq(engine.cells),
        hello.smallest.eq(wait),
        hello.give_up.eq(give_up),
        hello.capabilities.eq(Capability.SPLIT * engine.split
                              | (Capability.SACK | Capability.STRIPE) * selective
                              | Capability.KEYS * engine.has_keys
                              | Capability.MANAGED * managed),
        hello.boot.eq(file.boot.counter),
        hello.table.eq(table),
        engine.node.eq(file.node.number),
        file.links.up.eq(engine.links),
        engine.ack_delay.eq(file.fabric.ack_delay),
        engine.packing_limit.eq(file.fabric.packing_limit),
        engine.retry_wait.eq(file.retry.wait),
    ]
    for peer, registers in zip(engine.peers, file.peer, strict=True):
        m.d.comb += peer.node.eq(registers.node.number)
    _attach_sessions(m, engine, file)


def _attach_sessions(m, engine, file):
    """Registers of sessions: the engine has them, and each access is a request to it."""
    rows = next(e for e in file.block.entries if e.name == "session")
    setting, view = engine.setting, engine.session_view
    value = {r.name: Signal(32, name=f"session_{r.name}") for r in rows.registers}
    word = Signal(range(rows.stride // 4))
    words = {r.name: r.address // 4 for r in rows.registers}
    bits = exact_log2(rows.stride)
    m.d.comb += [
        word.eq(file.mem_address[2:bits]),
        setting.valid.eq(file.mem_request & file.mem_write),
        setting.payload.session.eq(file.mem_address[bits:]),
        setting.payload.mode.eq(file.mem_write_data),
        Cat(setting.payload.tx_tag, setting.payload.rx_tag).eq(file.mem_write_data),
        engine.view_request.eq(file.mem_request & ~file.mem_write),
        engine.view_session.eq(file.mem_address[bits:]),
        file.mem_done.eq(Mux(file.mem_write, setting.ready, engine.view_done)),
        value["mode"].eq(view.mode),
        value["tags"].eq(Cat(view.tx_tag, view.rx_tag)),
        value["hello"].eq(Cat(view.phase, C(0, 13), view.boot)),
        value["state"].eq(Cat(view.unacked, C(0, 4), view.path, C(0, 11), view.failed)),
        value["seq"].eq(view.state.seq),
        value["next"].eq(view.state.next),
        value["acked"].eq(view.state.acked),
        file.mem_read_data.eq(Array(value[r.name] for r in rows.registers)[word]),
        setting.payload.kind.eq(Mux(word == words["mode"], SettingKind.MODE, Mux(
            word == words["tags"], SettingKind.TAGS, SettingKind.OPEN))),
    ]
