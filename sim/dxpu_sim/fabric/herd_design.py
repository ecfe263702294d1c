"""A fabric engine with keys and all the sessions it can have; its peers are in Python."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.crypto import PretendedNoise
from dxpu.ethernet import Mac
from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.opening.types import KeyWord
from dxpu.fabric.session.types import Mode
from dxpu.fabric.wire.format import Role
from dxpu.proxy.keys import KeyUnit
from dxpu.stream import connect
from dxpu_sim.ethernet.frame_port import FrameSink, FrameSource
from dxpu_sim.run.clock import SimClock

from .sessions import attach_sessions

__all__ = ["NODE", "PEERS", "STREAMS", "HerdBench", "key_of", "peer_node"]

#: Peers of the engine, and streams of each; the engine's node.
PEERS, STREAMS, NODE = 16, 4, 0x101
#: Halves of a key.
_HALVES = 8


def peer_node(n):
    """Node of a peer."""
    return 0x001 + n


def key_of(n):
    """Key of the engine and a peer."""
    return bytes(n << 4 | byte for byte in range(2 * _HALVES))


class _Gives(wiring.Component):
    """Gives an engine the keys of all peers, once."""

    def __init__(self):
        super().__init__({"o": Out(stream.Signature(KeyWord))})

    def elaborate(self, platform):
        m = Module()
        keys = b"".join(key_of(n) for n in range(PEERS))
        m.submodules.words = words = memory.Memory(shape=16, depth=PEERS * _HALVES, init=[
            int.from_bytes(keys[n:n + 2], "little") for n in range(0, len(keys), 2)])
        read, count, o = words.read_port(domain="comb"), Signal(range(PEERS * _HALVES + 1)), self.o
        peer = count[exact_log2(_HALVES):]
        m.d.comb += [
            read.addr.eq(count), o.valid.eq(count != PEERS * _HALVES), o.payload.data.eq(read.data),
            o.payload.peer.eq(peer), o.payload.node.eq(peer_node(peer)),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += count.eq(count + 1)
        return m


class HerdBench(wiring.Component):
    """An engine of 16 peers and 4 streams, all under keys, with its cipher and its MAC; at the
    other end of its line, of 1 Gb/s, a MAC for frames of Python. All runs at 125 MHz.

    Members
    -------
    opens : 1
        The engine opens the sessions, as that of a host does; else it answers, as a box.
    boot : 16
        Boot counter of the engine: 0, until sessions may be opened.
    ready : 1
        All keys and random words are there, and all sessions are set up.
    tx_length, tx_discard, tx_send, tx_done
        Ports of :class:`~dxpu_sim.ethernet.frame_port.FrameSource`.
    rx_length, rx_discard, rx_toggle, rx_violations
        Ports of :class:`~dxpu_sim.ethernet.frame_port.FrameSink`.
    count_<counter> : 32
        Number of pulses of each event of the engine.
    cycle : 32
    """

    #: Waits as in hardware at 1 Gb/s, 250 us for the first answer; no quiet time.
    _SETTINGS = {"ack_delay": 125, "packing_limit": 512, "retry_wait": 488, "hello_wait": 488,
                 "quiet": 1}

    def __init__(self):
        self._engine = FabricEngine(64, rows=1, paths=1, peers=PEERS, streams=STREAMS, keyed=True)
        super().__init__({
            "opens": In(1), "boot": In(16), "ready": Out(1),
            "tx_length": In(16), "tx_discard": In(1), "tx_send": In(1), "tx_done": Out(1),
            "rx_length": Out(16), "rx_discard": Out(1), "rx_toggle": Out(1),
            "rx_violations": Out(8), "cycle": Out(32),
            **{f"count_{name}": Out(32) for name in self._engine.stats},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock("sync")
        m.d.sync += self.cycle.eq(self.cycle + 1)
        m.submodules.engine = engine = self._engine
        opens, boot = Signal(), Signal(16)
        m.d.sync += [opens.eq(self.opens), boot.eq(self.boot)]
        set_up, _ = attach_sessions(m, engine, PEERS * STREAMS, tx_tag=0, rx_tag=0,
                                    mode=Mux(opens, Mode.OPENS, Mode.ANSWERS))
        self._attach_keys(m, engine)
        self._attach_line(m, engine)
        m.d.comb += [
            *(getattr(engine, name).eq(value) for name, value in self._SETTINGS.items()),
            engine.node.eq(NODE), engine.boot.eq(boot), engine.local_hello.boot.eq(boot),
            engine.local_hello.role.eq(Mux(opens, Role.HOST, Role.BOX)),
            engine.tlp_o.ready.eq(1),
            self.ready.eq(engine.with_key.all() & engine.random.valid & set_up.done),
        ]
        for n, peer in enumerate(engine.peers):
            m.d.comb += [peer.valid.eq(1), peer.node.eq(peer_node(n))]
        for name in engine.stats:
            total = getattr(self, f"count_{name}")
            m.d.sync += total.eq(total + getattr(engine, f"stat_{name}"))
        return m

    @staticmethod
    def _attach_keys(m, engine):
        m.submodules.unit, m.submodules.keys = unit, keys = KeyUnit(), _Gives()
        m.submodules.noise = noise = PretendedNoise(seed=0x1234567)
        connect(m, noise.o, unit.noise)
        wiring.connect(m, engine.cmac, unit.cmac)
        connect(m, unit.random, engine.random)
        connect(m, keys.o, engine.new_key)
        m.d.comb += [engine.failed.eq(unit.failed), engine.keyed.eq(-1)]

    def _attach_line(self, m, engine):
        for name in ("mac", "peer_mac"):
            m.submodules[name] = Mac(64, rx_domain="sync", tx_domain="sync")
        mac, peer = m.submodules.mac, m.submodules.peer_mac
        m.submodules.source = source = FrameSource(64, max_bytes=2048)
        m.submodules.sink = sink = FrameSink(64, max_bytes=2048)
        connect(m, engine.frame_o[0], mac.i)
        connect(m, mac.o, engine.frame_i[0])
        connect(m, source.o, peer.i)
        connect(m, peer.o, sink.i)
        for one, other in ((mac, peer), (peer, mac)):
            m.d.comb += [
                one.gmii.rx.rxd.eq(other.gmii.tx.txd), one.gmii.rx.rx_dv.eq(other.gmii.tx.tx_en),
                one.gmii.rx.rx_er.eq(other.gmii.tx.tx_er),
            ]
        m.d.comb += [
            *(getattr(source, name).eq(getattr(self, f"tx_{name}"))
              for name in ("length", "discard", "send")),
            self.tx_done.eq(source.done),
            *(getattr(self, f"rx_{name}").eq(getattr(sink, name))
              for name in ("length", "discard", "toggle", "violations")),
        ]
