"""Pairs of proxies with a DMA engine at each slot and a memory at each host, in one design."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import connect
from dxpu_sim.pcie.mailbox import MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock
from dxpu_sim.run.module import instance_of
from dxpu_sim.run.pins import connect_pins
from dxpu_sim.system.regbox import RegisterBox, RegisterBoxSignature

from .gpu import FIELDS, DmaEngine
from .host_memory import HostMemory
from .lines import FRACTION, Pacer
from .pair import EVENTS, RATES, Pair
from .tlps import Spending

__all__ = ["GROUPS", "LOG", "NativeBench", "PaperBench", "pcie_link"]

#: Settings that engines may have; latencies that are logged.
GROUPS, LOG = 2, 1 << 11
#: PCIe Gen3 x16: lanes, transfers a second, coding (PCIe Base 5.0, 4.2.2); what remains besides
#: DLLPs; framing, sequence number and LCRC of a TLP (4.2.2.2, 3.6.2).
GEN3_X16_BYTES, WITHOUT_DLLPS, LINK_OVERHEAD = 16 * 8e9 * 128 / 130 / 8, 0.95, 8


def pcie_link(width, period_ps):
    """One direction of a PCIe Gen3 x16 link: its rate."""
    return Pacer(width, overhead=LINK_OVERHEAD, rate=round(
        GEN3_X16_BYTES * WITHOUT_DLLPS * period_ps * 1e-12 * FRACTION))


class Log(wiring.Component):
    """Numbers in the order of their strobes, all or one of several, until the log is full.

    Members
    -------
    strobe, value : In
    clear : In(1)
    every : In(8)
        Distance of the kept numbers, from 1 on.
    at : In(11)
    count, found : Out
        Length of the log; the number at ``at``, two cycles later.
    """

    strobe: In(1)
    value: In(20)
    clear: In(1)
    every: In(8)
    at: In(range(LOG))
    count: Out(range(LOG + 1))
    found: Out(20)

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(shape=20, depth=LOG, init=[])
        write, read, passed = words.write_port(), words.read_port(), Signal(8)
        m.d.comb += [
            write.addr.eq(self.count), write.data.eq(self.value),
            write.en.eq(self.strobe & (self.count != LOG) & (passed + 1 >= self.every)),
            read.addr.eq(self.at), self.found.eq(read.data),
        ]
        with m.If(self.strobe):
            m.d.sync += passed.eq(Mux(write.en, 0, passed + 1))
        with m.If(write.en):
            m.d.sync += self.count.eq(self.count + 1)
        with m.If(self.clear):
            m.d.sync += [self.count.eq(0), passed.eq(0)]
        return m


def _works():
    return {f"work{g}_{name}": In(shape) for g in range(GROUPS) for name, shape in FIELDS.items()}


def _settle(m, component):
    """The inputs, in registers: the simulator evaluates all logic behind an input at each edge."""
    settled = {}
    for name, member in component.signature.members.items():
        if member.is_port and member.flow is In:
            settled[name] = Signal(Shape.cast(member.shape), name=f"{name}_now")
            m.d.sync += settled[name].eq(getattr(component, name))
    return settled


def _employ(m, engine, now, bits):
    """Give an engine the work of the group that has it."""
    m.d.comb += engine.cycle.eq(now["cycle"])
    for g, bit in enumerate(bits):
        with m.If(bit):
            m.d.comb += [engine.work[name].eq(now[f"work{g}_{name}"])
                         for name in FIELDS]


class NativeBench(wiring.Component):
    """A DMA engine whose PCIe link ends at the host: no proxy. The clock is twice the clock of
    proxies of 512 bits, so only the link's rate counts.

    Members
    -------
    work0_* : In
        Fields of :class:`~.gpu.Work`.
    latency : In(16)
        Of the memory.
    clear, every, at, count, found
        Of the :class:`Log` of round trips.
    read_bytes, written_bytes : Out(40)
    errors : Out(16)
    cycle : Out(32)
    """

    PERIOD_PS, WIDTH = 2000, 512

    def __init__(self):
        super().__init__({
            **{name: flow for name, flow in _works().items() if name.startswith("work0")},
            "latency": In(16), "clear": In(1), "every": In(8, init=1), "at": In(range(LOG)),
            "count": Out(range(LOG + 1)), "found": Out(20),
            "read_bytes": Out(40), "written_bytes": Out(40), "errors": Out(16), "cycle": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock("sync", period_ps=self.PERIOD_PS)
        m.d.sync += self.cycle.eq(self.cycle + 1)
        now = _settle(m, self) | {"cycle": self.cycle}
        m.submodules.engine = engine = DmaEngine(self.WIDTH)
        m.submodules.memory = held = HostMemory(self.WIDTH)
        m.submodules.up, m.submodules.down = up, down = (
            pcie_link(self.WIDTH, self.PERIOD_PS), pcie_link(self.WIDTH, self.PERIOD_PS))
        m.submodules.log = log = Log()
        _employ(m, engine, now, [C(1)])
        connect(m, engine.o, up.i)
        connect(m, held.o, down.i)
        connect(m, down.o, engine.cpl)
        split_requests(m, up.o, held)
        m.d.comb += [
            held.latency.eq(now["latency"]), held.cycle.eq(self.cycle),
            log.strobe.eq(engine.done), log.value.eq(engine.latency),
            log.clear.eq(now["clear"]), log.every.eq(now["every"]), log.at.eq(now["at"]),
            self.count.eq(log.count), self.found.eq(log.found),
            self.read_bytes.eq(engine.read_bytes), self.written_bytes.eq(held.written_bytes),
            self.errors.eq(engine.errors + held.errors),
        ]
        return m


def split_requests(m, requests, held):
    """Lead reads and writes of one stream to the two streams of a memory."""
    write, kept = Signal(), Signal()
    m.d.comb += [
        write.eq(Mux(requests.payload.first, requests.payload.data[6], kept)),
        held.p.payload.eq(requests.payload), held.np.payload.eq(requests.payload),
        held.p.valid.eq(requests.valid & write), held.np.valid.eq(requests.valid & ~write),
        requests.ready.eq(1),
    ]
    m.d.sync += kept.eq(write)


class PaperBench(wiring.Component):
    """Pairs of proxies; at each slot a DMA engine behind a PCIe link, at each host a memory.

    While ``setup`` is 1 the mailbox of each host sends TLPs, later the memory does; completions of
    configuration requests go to the mailbox. With ``forward`` posted TLPs of the first host's proxy
    enter the second host's proxy, as through a root complex, instead of the memory.

    Parameters
    ----------
    rate : str
        Of :data:`~.pair.RATES`.
    pairs, slots : int
    deep : bool, optional
        Of :class:`~.pair.Pair`.

    Members
    -------
    host<n> : In(MailboxSignature())
    host<n>_bus, box<n>_bus : In(RegisterBoxSignature())
    setup, forward : In(1)
    work<g>_<field> : In
        Of :class:`~.gpu.Work`; ``group<g>`` has a bit for each engine with this work, in the order
        of pairs and slots. Of several works the highest number counts.
    watched : In
        Engine of the logged round trips.
    delay, loss : In(16), In(17)
        Of all lines.
    latency : In(16)
        Of the memories.
    clear, every, at, count, found
        Of the :class:`Log`.
    read_bytes<n>, arrived_bytes<n>, under_way<n> : Out
        Of engine n.
    written_bytes<n> : Out(40)
        Of memory n.
    to_host<n>, to_box<n> : Out(48)
        Bytes on the line of pair n.
    time<n> : Out(32)
        Cycle of event n of :data:`~.pair.EVENTS` on the way of a read of engine 0, on an idle
        fabric; ``time_begin``, ``time_end``: first and last beat at the engine.
    lost, errors : Out(32), Out(32)
    cycle : Out(32)
    """

    def __init__(self, rate, *, pairs=1, slots=8, deep=None):
        self._rate, self._pairs, self._slots = RATES[rate], pairs, slots
        self.pair = Pair(rate, slots=slots, deep=deep)
        #: Compiled once for all pairs.
        self.parts = {"paper_pair": self.pair}
        engines = range(pairs * slots)
        members = {
            **{f"host{n}": In(MailboxSignature()) for n in range(pairs)},
            **{f"{name}{n}_bus": In(RegisterBoxSignature())
               for n in range(pairs) for name in ("host", "box")},
            **_works(), **{f"group{g}": In(len(engines)) for g in range(GROUPS)},
            "setup": In(1), "forward": In(1), "watched": In(range(max(2, len(engines)))),
            "delay": In(16), "loss": In(17), "latency": In(16),
            "clear": In(1), "every": In(8, init=1), "at": In(range(LOG)),
            "count": Out(range(LOG + 1)), "found": Out(20),
            **{f"{name}{n}": Out(40) for n in engines for name in ("read_bytes", "arrived_bytes")},
            **{f"under_way{n}": Out(9) for n in engines},
            **{f"written_bytes{n}": Out(40) for n in range(pairs)},
            **{f"{name}{n}": Out(48) for n in range(pairs) for name in ("to_host", "to_box")},
            **{f"time{n}": Out(32) for n in range(len(EVENTS))},
            "time_begin": Out(32), "time_end": Out(32),
            "lost": Out(32), "errors": Out(32), "cycle": Out(32),
        }
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock("sync", period_ps=self._rate.period_ps)
        m.d.sync += self.cycle.eq(self.cycle + 1)
        now = _settle(m, self) | {"cycle": self.cycle}
        pairs, engines = [], []
        for n in range(self._pairs):
            m.submodules[f"pair{n}"], pair = instance_of("paper_pair", self.pair)
            pairs.append(pair)
            for name in ("host", "box"):
                m.submodules[f"{name}{n}_bus"] = bus = RegisterBox()
                connect_pins(m, getattr(self, f"{name}{n}_bus"), bus.py)
                wiring.connect(m, bus.bus, getattr(pair, f"{name}_bus"))
            m.d.comb += [
                pair.delay.eq(now["delay"]), pair.loss.eq(now["loss"]),
                getattr(self, f"to_host{n}").eq(pair.to_host),
                getattr(self, f"to_box{n}").eq(pair.to_box),
            ]
            engines += [self._attach_gpu(m, slot, pair, n, k, now)
                        for k, slot in enumerate(pair.slot)]
        held = [self._attach_host(m, pair, n, now) for n, pair in enumerate(pairs)]
        if len(pairs) > 1:
            self._forward(m, held, now["forward"])
        m.d.comb += [
            self.lost.eq(sum(pair.lost for pair in pairs)),
            self.errors.eq(sum(part.errors for part in (*engines, *(each[0] for each in held)))),
        ]
        self._watch(m, engines, now)
        self._follow(m, engines[0], pairs[0].events)
        return m

    def _attach_gpu(self, m, slot, pair, n, k, now):
        """The engine of a slot."""
        width, period = self._rate.width, self._rate.period_ps
        number = n * self._slots + k
        m.submodules[f"engine{number}"] = engine = DmaEngine(width, seed=number + 1, credits=True)
        ways = {}
        for name in ("up", "down_p", "down_cpl"):
            m.submodules[f"{name}{number}"] = ways[name] = pcie_link(width, period)
        connect(m, engine.o, ways["up"].i)
        connect(m, ways["up"].o, slot.rx)
        for cls in ("p", "cpl"):
            connect(m, getattr(slot, f"tx_{cls}"), ways[f"down_{cls}"].i)
            connect(m, ways[f"down_{cls}"].o, getattr(engine, cls))
        connect(m, slot.tx_np, engine.np)
        _employ(m, engine, now, [now[f"group{g}"][number] for g in range(GROUPS)])
        m.d.sync += slot.link_up.eq(~pair.reset[k])
        m.d.comb += [
            engine.rx_p.eq(slot.rx_p), engine.rx_np.eq(slot.rx_np),
            # Buses from 3 on are those of the slots.
            engine.requester.eq(3 + k << 8),
            *(getattr(self, f"{name}{number}").eq(getattr(engine, name))
              for name in ("read_bytes", "arrived_bytes", "under_way")),
        ]
        return engine

    def _attach_host(self, m, pair, n, now):
        """The memory and the mailbox of a host; returns the memory, and the links around it."""
        width, period, port = self._rate.width, self._rate.period_ps, pair.upstream
        m.submodules[f"memory{n}"] = held = HostMemory(width, credits=True)
        m.submodules[f"mailbox{n}"] = mailbox = TlpPort(width, seed=n + 1)
        connect_pins(m, getattr(self, f"host{n}"), mailbox.py)
        ways = {}
        for name in ("up_p", "up_np", "down"):
            m.submodules[f"host_{name}{n}"] = ways[name] = pcie_link(width, period)
        for cls in ("p", "np"):
            connect(m, getattr(port, f"tx_{cls}"), ways[f"up_{cls}"].i)
        connect(m, ways["up_np"].o, held.np)
        connect(m, port.tx_cpl, mailbox.i_cpl)
        connect(m, ways["down"].o, port.rx)
        source = ways["down"].i
        setup = now["setup"]
        m.d.comb += [
            held.p.payload.eq(ways["up_p"].o.payload), held.p.valid.eq(ways["up_p"].o.valid),
            ways["up_p"].o.ready.eq(1),
            source.payload.eq(Mux(setup, mailbox.o.payload.as_value(), held.o.payload.as_value())),
            source.valid.eq(Mux(setup, mailbox.o.valid, held.o.valid)),
            mailbox.o.ready.eq(setup & source.ready), held.o.ready.eq(~setup & source.ready),
            port.link_up.eq(mailbox.link_up),
            held.rx_cpl.eq(port.rx_cpl), held.latency.eq(now["latency"]),
            held.cycle.eq(self.cycle),
            getattr(self, f"written_bytes{n}").eq(held.written_bytes),
        ]
        return held, ways, port, mailbox

    def _forward(self, m, held, forward):
        """Posted TLPs of the first host to the second one, as its credits allow."""
        (memory, first, _, _), (there, second, port, mailbox) = held
        source, sink = first["up_p"].o, second["down"].i
        m.submodules.forwarding = credits = Spending()
        length = Signal(10)
        may = Signal()
        m.d.comb += [
            length.eq(Cat(source.payload.data[24:32], source.payload.data[16:18])),
            credits.limits.eq(port.rx_p), credits.dwords.eq(Cat(length, length == 0)),
            may.eq(credits.may | ~source.payload.first),
        ]
        with m.If(forward):
            m.d.comb += [
                memory.p.valid.eq(0), there.o.ready.eq(0), mailbox.o.ready.eq(0),
                sink.payload.eq(source.payload), sink.valid.eq(source.valid & may),
                source.ready.eq(sink.ready & may),
                credits.begins.eq(sink.valid & sink.ready & source.payload.first),
            ]

    def _watch(self, m, engines, now):
        """Log the round trips of one engine."""
        m.submodules.log = log = Log()
        m.d.comb += [
            log.strobe.eq(Array(engine.done for engine in engines)[now["watched"]]),
            log.value.eq(Array(engine.latency for engine in engines)[now["watched"]]),
            log.clear.eq(now["clear"]), log.every.eq(now["every"]), log.at.eq(now["at"]),
            self.count.eq(log.count), self.found.eq(log.found),
        ]

    def _follow(self, m, engine, events):
        """Times of the events on the way of a read, each after the one before."""
        step = Signal(range(len(EVENTS) + 1))
        with m.If(engine.done):
            m.d.sync += [self.time_end.eq(self.cycle), step.eq(0)]
        with m.Elif(events.bit_select(step, 1)):
            m.d.sync += step.eq(step + 1)
            with m.Switch(step):
                for n in range(len(EVENTS)):
                    with m.Case(n):
                        m.d.sync += getattr(self, f"time{n}").eq(self.cycle)
        with m.If(engine.begun):
            m.d.sync += self.time_begin.eq(self.cycle)
