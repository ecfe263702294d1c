"""Bench of the virtual switch: with the real host table, against the golden switch."""

from collections import Counter

from amaranth import Array, Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.mapping import HostTable
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketSignature, connect
from dxpu.switch.switch import VirtualSwitch
from dxpu.switch.types import SlotInfo
from dxpu.tlp.types import TlpInfo
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp, classify, malformed, random_tlp
from dxpu_sim.switch.golden import golden_switch
from dxpu_sim.switch.streams import Splitter
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, shared, simulate,
)

__all__ = ["SwitchBench", "config_tlp", "info_of", "random_traffic"]


class Switch(wiring.Component):
    """VirtualSwitch and HostTable, wired; TLPs come with their information beside each beat."""

    def __init__(self, width, ports, identity=None):
        self.switch = VirtualSwitch(width, ports=ports, identity=identity)
        self.table = HostTable(ports=ports)
        super().__init__({name: member for name, member in self.switch.signature.members.items()
                          if name not in ("lookup0", "lookup1", "result0", "result1", "config")
                          and not name.endswith(("_info", "_beats"))}
                         | {"upstream_i": In(PacketSignature(width, TlpInfo)),
                            "downstream_i": In(PacketSignature(width, SlotInfo)),
                            "old": In(1),  # TLPs from slots are of the former life,
                            "fixed": In(1), "life": In(LIFE_BITS)})  # or, if ``fixed``, of ``life``

    def elaborate(self, platform):
        m = Module()
        m.submodules.switch, m.submodules.table = switch, table = self.switch, self.table
        for n in "01":
            connect(m, getattr(switch, f"lookup{n}"), getattr(table, f"lookup{n}"))
            connect(m, getattr(table, f"result{n}"), getattr(switch, f"result{n}"))
        m.d.comb += table.config.eq(switch.config)
        connect(m, wiring.flipped(self.malformed), switch.malformed)
        for name, i, info, beats in (
                ("up", self.upstream_i, switch.upstream_info, switch.upstream_beats),
                ("down", self.downstream_i, switch.downstream_info, switch.downstream_beats)):
            m.submodules[f"{name}_splitter"] = splitter = Splitter(
                len(i.p.data), i.p.shape().meta)
            connect(m, wiring.flipped(i), splitter.i)
            connect(m, splitter.info, info)
            connect(m, splitter.beats, beats)
        for name in ("upstream_o", "downstream_o"):
            connect(m, getattr(switch, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [*(getattr(switch, name).eq(getattr(self, name))
                       for name in ("present", "link_up", "press", "bound", "internal_error",
                                    "peer_room", "late", "upstream_down", "orderly",
                                    "malformed_now")),
                     *(getattr(self, name).eq(getattr(switch, name))
                       for name in ("link_active", "slot_off", "lives", "bus", "placeholder",
                                    "abort", "contained")),
                     splitter.i.p.meta.life.eq(Mux(
                         self.fixed, self.life,
                         Array(switch.lives)[self.downstream_i.p.meta.port] - self.old)),
                     *(a.eq(b) for a, b in zip(self.slot_control, switch.slot_control,
                                               strict=True))]
        m.d.comb += [getattr(self, stat).eq(getattr(switch, stat)) for stat in switch.STATS]
        return m


def info_of(raw):
    """Side information of the parser for a TLP."""
    assert not malformed(raw), malformed(raw)
    return {name: value or 0 for name, value in vars(classify(raw)).items()}


def config_tlp(target_id, register, data=None, *, type1=False, enables=15, requester=0x0008,
               tag=0, **fields):
    """A configuration read, or a write of ``data``."""
    fmt, type = KINDS[("CfgRd" if data is None else "CfgWr") + ("1" if type1 else "0")]
    return Tlp(fmt, type, length=1, requester_id=requester, tag=tag, first_be=enables,
               target_id=target_id, register=register,
               payload=b"" if data is None else data.to_bytes(4, "little"), **fields).pack()


class SwitchBench:
    """Runs TLPs through switch and golden switch.

    A test passes a coroutine to :meth:`simulate`, which calls :meth:`run`.
    """

    #: Internal streams of the switch to be checked besides its outputs.
    also_checked = ()
    #: Cycles in which INTx wires may still follow.
    patience = 0

    def __init__(self, width, ports, rng, *, density=1.0, identity=None):
        self.dut = shared(Switch, width, ports, identity)
        self.golden = golden_switch(ports, identity)
        self.ports = ports
        self.rng = rng
        self.density = density
        self.totals = Counter()
        self.got = {"up_o": [], "down_o": []}
        self.wires = [False] * 4  # state after the INTx messages received
        self.told, self.to_tell = [], []  # messages of the switch itself: received, expected
        self.interrupts = 0
        self.all_limits = []
        self.limits = []   # Set_Slot_Power_Limit received, by slot
        self.numbered = False  # bus numbers may change meanwhile
        self.hold_up = False  # take nothing from the upstream port
        self._jobs = {}
        self._done = {}

    def simulate(self, main, **kwargs):
        """Run ``main(ctx)`` with the bench around it; compare the counters at the end."""
        dut = self.dut

        async def wrapped(ctx):
            await main(ctx)
            await ctx.tick().repeat(60)
            assert not any(self.got.values()), "a TLP too many"

        simulate(dut, wrapped, background=[
            *self.background, self._count, check_stream(dut.upstream_o, "upstream_o"),
            check_stream(dut.downstream_o, "downstream_o"),
            *(check_stream(getattr(dut.switch, s), s) for s in self.also_checked),
        ], **kwargs)
        # Two changes of a wire may cause one message, or none.
        assert self.totals.pop("interrupt", 0) == self.interrupts
        self.golden.counts.pop("interrupt", None)
        # Counters that depend on simultaneous errors, and on the order of both sides.
        for name in ("unsent", "unlogged"):
            self.totals.pop(name, None)
            self.golden.counts.pop(name, None)
        assert self.totals == self.golden.counts

    async def _up(self, ctx):
        def sort(packet):
            if not self._told(packet):
                self.got["up_o"].append(packet)
        await self._collect(ctx, self.dut.upstream_o, sort)

    async def _collect(self, ctx, stream, sort):
        now = 0
        while True:
            while self.hold_up and stream is self.dut.upstream_o:
                await ctx.tick()
                now += 1
            got = []
            await collect_packets(stream, 1, got, rng=self.rng, density=self.density)(ctx)
            got[0].first_cycle += now
            now = got[0].last_cycle = got[0].last_cycle + now
            sort(got[0])

    def _told(self, packet):
        """Whether this is a message of the switch about its INTx wires, a PME_TO_Ack, or LTR."""
        tlp = Tlp.unpack(packet.data)
        ports = [self.golden.identifier(n) for n in range(self.ports)]
        error = tlp.type & 7 == 0 and tlp.message_code in (0x30, 0x31, 0x33)
        if tlp.kind != "Msg" or tlp.requester_id not in (
                self.golden.captured, *(ports if error else ())):
            return False
        own = Tlp(tlp.fmt, tlp.type, requester_id=tlp.requester_id, message_code=tlp.message_code)
        if tlp.type & 7 == 4 and 0x20 <= tlp.message_code < 0x28:
            wire, level = tlp.message_code & 3, tlp.message_code < 0x24
            assert self.wires[wire] != level, "a wire that does not change"
            self.wires[wire] = level
            self.interrupts += 1
        elif tlp.type & 7 == 5 and tlp.message_code == 0x1B:
            pass
        elif tlp.type & 7 == 4 and tlp.message_code == 0x10:
            # Latencies are in the last dword of the header.
            assert packet.data[:12] == own.pack()[:12] and packet.meta.name == "P"
            self.told.append(packet.data)
            return True
        elif not error:
            return False
        assert packet.data == own.pack() and packet.meta.name == "P"
        self.told.append(packet.data)
        return True

    async def _down(self, ctx):
        def sort(packet):
            tlp = Tlp.unpack(packet.data)
            if tlp.kind == "MsgD" and tlp.message_code == 0x50 and tlp.type & 7 == 4:
                assert packet.meta.cls.name == "P"
                self.limits.append((packet.meta.port, packet.data))
            else:
                self.got["down_o"].append(packet)
        await self._collect(ctx, self.dut.downstream_o, sort)

    async def check_limits(self, ctx):
        """Check that each slot whose link came up, or whose limit was written, has got its power
        limit.

        A power limit due when the link went down may be missing.
        """
        for port in range(self.ports):
            due = [raw for n, raw in self.golden.limits if n == port]
            for _ in range(200 * (self.ports + 1)):  # functions may be in reset
                sent = [raw for n, raw in self.limits if n == port]
                if sent or not due or not self.golden.link_active(port):
                    break
                await ctx.tick()
            assert len(sent) <= len(due)
            assert bool(sent) == bool(due) or not self.golden.link_active(port)
            # The requester ID is that of the time of sending.
            assert all(raw[:4] + raw[6:] == due[0][:4] + due[0][6:] for raw in sent)
            if len(due) == 1 and sent and not self.numbered:
                assert sent == due
        self.all_limits += self.limits
        self.golden.limits, self.limits = [], []

    @property
    def background(self):
        """Processes that drive the inputs and collect the outputs."""
        return [self.worker("up_i"), self.worker("down_i"), self._up, self._down]

    async def _count(self, ctx):
        stats = [getattr(self.dut, s) for s in VirtualSwitch.STATS]
        async for *_, _in_reset, values in ctx.tick().sample(Cat(stats)):
            if values:
                for n, s in enumerate(VirtualSwitch.STATS):
                    if values >> n & 1:
                        self.totals[s.removeprefix("stat_")] += 1

    def worker(self, name):
        """Background process that carries out the jobs of one stream."""
        async def process(ctx):
            while True:
                if name not in self._jobs:
                    async for _ in ctx.tick():
                        if name in self._jobs:
                            break
                await self._jobs.pop(name)(ctx)
                self._done[name] = True
        return process

    def tell(self):
        """Collect the messages of the golden switch itself."""
        self.to_tell += self.golden.interrupts()[0]

    def present(self, ctx, mask):
        """Put GPUs into the slots of ``mask``, and take away the others."""
        ctx.set(self.dut.present, mask)
        self.golden.present = [bool(mask >> n & 1) for n in range(self.ports)]

    def bound(self, ctx, mask):
        """Bind the slots of ``mask``, release the others."""
        ctx.set(self.dut.bound, mask)
        self.golden.places.bound = [bool(mask >> n & 1) for n in range(self.ports)]

    def feed(self, from_slots):
        """Start sending TLPs from slots to the switch only, not to the golden switch."""
        packets = [Packet(raw, {"port": slot, "info": info_of(raw)}) for slot, raw in from_slots]
        self._jobs = {"down_i": drive_packets(self.dut.downstream_i, packets, rng=self.rng,
                                              density=self.density)}

    async def run(self, ctx, from_up=(), from_slots=(), *, settle=30):
        """Send TLPs at both sides at once and compare the TLPs that leave.

        ``from_slots`` are pairs of slot and TLP. Returns the TLPs that left, as pairs (UP or slot,
        TLP).
        """
        expected = [[], [], []]  # in order: from upstream, from the slots, answers to the slots
        for raw in from_up:
            expected[0] += self.golden.from_upstream(raw)
        for slot, raw in from_slots:
            self.tell()
            for out in self.golden.from_slot(slot, raw):
                answer = out[0] == slot and out[1] != raw
                expected[2 if answer else 1].append(out)
        everything = sum(expected, [])
        counts = {"up_o": sum(side == UP for side, _ in everything)}
        counts["down_o"] = len(everything) - counts["up_o"]
        got = self.got
        rng, density = self.rng, self.density
        self.numbered = any(info_of(raw)["is_config"] for raw in from_up)
        up = [Packet(raw, info_of(raw)) for raw in from_up]
        down = [Packet(raw, {"port": slot, "info": info_of(raw)}) for slot, raw in from_slots]
        self._done = {}
        self._jobs = {
            "up_i": drive_packets(self.dut.upstream_i, up, rng=rng, density=density),
            "down_i": drive_packets(self.dut.downstream_i, down, rng=rng, density=density),
        }
        for _ in range(40 * (len(up) + len(down)) * 30 + 6000):
            if len(self._done) == 2 and all(len(got[n]) >= count for n, count in counts.items()):
                break
            await ctx.tick()
        else:
            left = {name: len(got[name]) for name in got}
            raise AssertionError(f"only {left} of {counts} TLPs came out")
        await ctx.tick().repeat(settle)
        self.tell()
        for _ in range(self.patience):
            if self.wires == self.golden.wires:
                break
            await ctx.tick()
        assert self.wires == self.golden.wires
        await self.check_limits(ctx)
        got = {name: list(packets) for name, packets in got.items()}
        for packets in self.got.values():
            packets.clear()
        self.packets = {"up_i": up, "down_i": down, **got}
        out = ([(UP, p.data, p.meta) for p in got["up_o"]]
               + [(p.meta.port, p.data, p.meta.cls) for p in got["down_o"]])
        _compare(expected, out)
        return [(side, raw) for side, raw, _ in out]


def _compare(expected, out):
    """Check that ``out`` is a merge of the expected lists, each side in order."""
    for side_out, sides in ((lambda s: s == UP, "upstream"), (lambda s: s != UP, "slots")):
        heads = [[x for x in queue if side_out(x[0])] for queue in expected]
        for side, raw, cls in out:
            if not side_out(side):
                continue
            for queue in heads:
                if queue and queue[0] == (side, raw):
                    queue.pop(0)
                    break
            else:
                raise AssertionError(
                    f"to {sides}: got {side} {raw.hex()}\n{_name(raw)}\nexpected one of\n"
                    + "\n".join(f"{q[0][0]} {q[0][1].hex()} {_name(q[0][1])}"
                                for q in heads if q))
            assert cls == classify(raw).cls, "class"
        assert not any(heads)


def _name(raw):
    return Tlp.unpack(raw)


def random_traffic(rng, bench, count, *, kinds=None, max_payload=20):
    """TLPs with addresses and identifiers near the borders of the golden switch's windows."""
    g = bench.golden
    bridges = [g.up, *g.down]
    addresses, ports, buses = [0, 0x1000, 0xFFFFF000], [0, 0xFFFF], [0, 1, 255]
    for b in bridges:
        low = b.get("Memory Base", "Memory Base [31:20]") << 20
        high = b.get("Memory Limit", "Memory Limit [31:20]") << 20 | 0xFF000
        addresses += [low, low - 0x1000, high, high + 0x1000]
        low = (b.get("Prefetchable Base Upper 32 Bits", "Prefetchable Base [63:32]") << 32
               | b.get("Prefetchable Memory Base", "Prefetchable Base [31:20]") << 20)
        high = (b.get("Prefetchable Limit Upper 32 Bits", "Prefetchable Limit [63:32]") << 32
                | b.get("Prefetchable Memory Limit", "Prefetchable Limit [31:20]") << 20 | 0xFF000)
        addresses += [low, low - 0x1000, high, high + 0x1000, low + 0x100000]
        low = (b.get("I/O Base Upper 16 Bits", "I/O Base [31:16]") << 16
               | b.get("I/O Base", "I/O Base [15:12]") << 12)
        ports += [low, low - 4, low + 0xFFC, low + 0x400, low + 0x104, low + 0x1000]
        secondary, subordinate = b.buses()
        buses += [secondary, subordinate, secondary, subordinate, secondary - 1, subordinate + 1]
    while count:
        tlp = random_tlp(rng, max_payload=max_payload, kinds=kinds)
        info = classify(tlp.pack())
        bus = rng.choice(buses) & 0xFF
        device = rng.choice([0, 0, rng.randrange(32), rng.randrange(bench.ports)])
        identifier = bus << 8 | device << 3 | rng.choice([0, 0, rng.randrange(8)])
        if info.is_memory:
            page = rng.choice(addresses) % (1 << 64 if tlp.fmt & 1 else 1 << 32)
            tlp.address = page & ~0xFFF | tlp.address & 0xFFF
        elif info.is_io:
            tlp.address = rng.choice(ports) & 0xFFFF_FFFC
        elif info.cls.name == "CPL":
            tlp.requester_id = identifier
        else:
            tlp.target_id = identifier
            if info.is_config:
                tlp.register = rng.choice([tlp.register, rng.randrange(128)])
                if tlp.register in (1, 7, 0x1A, *range(0x41, 0x52)):
                    tlp.register = 0  # error bits depend on the order with TLPs from slots
                if info.is_write and (not info.is_type1 or rng.random() < 0.7):
                    continue  # tests set the configuration, not random traffic
        if rng.random() < 0.9 and info.cls.name != "CPL":
            tlp.requester_id = tlp.requester_id & 0xFF | (rng.choice(buses) & 0xFF) << 8
        raw = tlp.pack()
        if malformed(raw) or info.is_message and tlp.requester_id in (
                g.captured, *(g.identifier(n) for n in range(bench.ports))):
            continue  # with the switch as source it would look like the switch's own message
        count -= 1
        yield raw
