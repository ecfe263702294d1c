"""dxpu.switch.errors.reporting: status bits, AER and error messages, against the golden switch."""

import random
from collections import Counter

import pytest
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu.tlp.types import Fmt, Type
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp
from tests.hdl.switch.test_routing import random_configuration
from tests.hdl.switch.test_switch import enumerate_tree, memory_tlp
from tests.support.switch_bench import SwitchBench, config_tlp, info_of, random_traffic
from tests.support.testbench import Packet, drive_packets, seed
from tests.support.widths import some_widths

COMMAND, SECONDARY, DEVICE, BRIDGE, PMCSR, DEVICE2 = 1, 7, 0x1A, 0xF, 0x11, 0x22
STATUS, MASK, SEVERITY, COR_STATUS, COR_MASK, CAPS, LOG = range(0x41, 0x48)
PREFIX_LOG = (0x100 + 0x38) // 4  # 7.8.4.12: 38h in the capability, four dwords
REGISTERS = (COMMAND, SECONDARY, DEVICE, *range(STATUS, LOG + 4),
             *range(PREFIX_LOG, PREFIX_LOG + 4))
NONFATAL, FATAL, COR = 0x31, 0x33, 0x30


class Bench(SwitchBench):
    """Reads the error registers of all functions, and compares the messages, after each step."""

    registers = REGISTERS
    patience = 60

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.values = {}
        self.more = []  # processes

    @property
    def background(self):
        return [*super().background, *self.more]

    async def look(self, ctx):
        """Read what must have changed, and a few other registers."""
        wanted, up = [], self.golden.up
        for n, f in enumerate((up, *self.golden.down)):
            if n == 0 or up.has_bus(up.buses()[0]):
                changed = [r for r in self.registers if self.values.get((n, r)) != f.read(r)]
                wanted += [(n, r) for r in {*changed, *self.rng.sample(self.registers, 2)}]
        out = await self.run(ctx, [self.read(*where) for where in wanted], settle=1)
        self.values |= {where: int.from_bytes(Tlp.unpack(raw).payload, "little")
                        for where, (_, raw) in zip(wanted, out, strict=True)}

    async def fetch(self, ctx, n, register):
        """Read a register, whatever the golden switch says."""
        raw = self.read(n, register)[:6] + bytes([0xEE]) + self.read(n, register)[7:]
        self._jobs = {"up_i": drive_packets(self.dut.upstream_i, [Packet(raw, info_of(raw))])}
        for _ in range(2000):
            await ctx.tick()
            for packet in self.got["up_o"]:
                tlp = Tlp.unpack(packet.data)
                if tlp.kind == "CplD" and tlp.tag == 0xEE:
                    self.got["up_o"].remove(packet)
                    self.totals["config"] -= 1
                    value = int.from_bytes(tlp.payload, "little")
                    self.values[n, register] = value
                    return value
        raise AssertionError("no answer to a configuration read")

    async def step(self, ctx, from_up=(), from_slots=()):
        """Returns the codes of the error messages, by requester."""
        out = await self.run(ctx, from_up, from_slots, settle=1)
        await self.settled(ctx)
        told, self.told, self.to_tell = self.told, [], []
        return [(Tlp.unpack(raw).requester_id, Tlp.unpack(raw).message_code) for raw in told], out

    async def malformed(self, ctx, port):
        """A malformed TLP that came to a port, whose link is up, was removed."""
        header = self.rng.randbytes(16)
        dwords = [int.from_bytes(header[n:n + 4], "little") for n in range(0, 16, 4)]
        ctx.set(self.dut.malformed.p, dict(function=port + 1, header=dwords))
        ctx.set(self.dut.malformed.valid, 1)
        if port >= 0:
            ctx.set(self.dut.malformed_now, 1 << port)
            await ctx.tick()
            ctx.set(self.dut.malformed_now, 0)
        # It is logged only as far as its first byte says that the header goes.
        self.golden.malformed(header[:16 if header[0] >> 5 & 1 else 12], port)
        await ctx.tick().until(self.dut.malformed.ready)
        ctx.set(self.dut.malformed.valid, 0)
        return await self.step(ctx)

    async def settled(self, ctx):
        """Messages are all there, but for those that were the same as one that waited."""
        for _ in range(400):
            if len(self.told) + self.totals["unsent"] >= len(self.to_tell):
                break
            await ctx.tick().repeat(20)
        await ctx.tick().repeat(40)
        missing = Counter(self.to_tell) - Counter(self.told)
        assert not Counter(self.told) - Counter(self.to_tell)
        assert missing.total() == self.totals.pop("unsent", 0) and set(missing) <= set(self.told)
        await self.look(ctx)

    def function(self, n):
        return self.golden.down[n - 1] if n else self.golden.up

    def read(self, n, register):
        """A configuration read of function ``n``."""
        bus = self.golden.up.buses()[0]
        return config_tlp(bus << 8 | n - 1 << 3 if n else self.golden.captured, register,
                          type1=n > 0)

    def write(self, n, register, data, enables=15):
        """A configuration write to function ``n``."""
        target = 0x0100 if n == 0 else 0x0200 | n - 1 << 3
        return config_tlp(target, register, data, type1=n > 0, enables=enables)

    async def clear(self, ctx):
        """Ones to all status bits."""
        await self.step(ctx, [self.write(n, register, data, enables)
                              for n in range(self.ports + 1) for register, data, enables in (
                                  (COMMAND, 0xFFFF0000, 12), (SECONDARY, 0xFFFF0000, 12),
                                  (DEVICE, 0xFFFF0000, 12), (STATUS, 0xFFFFFFFF, 15),
                                  (COR_STATUS, 0xFFFFFFFF, 15))])


def poison(raw):
    """The TLP with EP set."""
    return raw[:2] + bytes([raw[2] | 0x40]) + raw[3:]


def message(code, routing, requester=0, payload=b""):
    return Tlp(Fmt.HEADER_4_DATA if payload else Fmt.HEADER_4, Type.MESSAGE_TO_ROOT | routing,
               length=len(payload) // 4, requester_id=requester, message_code=code,
               payload=payload).pack()


def completion(requester, status=0, payload=b""):
    fmt, type = KINDS["CplD" if payload else "Cpl"]
    return Tlp(fmt, type, requester_id=requester, completer_id=0x0300, status=status,
               length=len(payload) // 4, byte_count=4, payload=payload).pack()


async def start(bench, ctx, *, report=True):
    """A tree of ports; all reporting on."""
    await enumerate_tree(bench, ctx)
    bench.present(ctx, (1 << bench.ports) - 1)
    await bench.clear(ctx)
    if report:
        await bench.step(ctx, [bench.write(n, register, data, enables)
                               for n in range(bench.ports + 1) for register, data, enables in (
                                   (COMMAND, 0x147, 3), (DEVICE, 0xF, 3), (COR_MASK, 0, 15),
                                   (BRIDGE, 3 << 16, 12))])


WINDOW = 0x20_0000_0000
OUTSIDE = 0x7000_0000


def test_errors_by_hand():
    """Each kind once: register bits as PCIe Base 5.0 names them, message, who reports."""
    bench = Bench(64, 2, random.Random(seed()))
    inside = memory_tlp(WINDOW, write=True, dwords=3)
    cases = (
        # from upstream, from slot 0, function, uncorrectable bit, message
        (memory_tlp(OUTSIDE, write=True, wide=False), None, 0, 20, NONFATAL),
        (memory_tlp(OUTSIDE, wide=False), None, 0, 20, COR),
        (completion(0x0900), None, 0, 16, COR),
        (poison(inside), None, 0, 12, COR),
        (None, memory_tlp(0x1000, write=True, requester=0x900), 1, 21, NONFATAL),
        (None, memory_tlp(0x1000, requester=0x900), 1, 21, COR),
        (None, memory_tlp(WINDOW, write=True, requester=0x300), 1, 20, NONFATAL),
        (None, poison(completion(0x0008, payload=bytes(4))), 1, 12, COR),
        (None, message(0x7E, 4, 0x300), 1, 20, NONFATAL),
        (None, message(0x7F, 4, 0x300), 1, None, None),
        # OBFF and PTM, which are not implemented, whatever their traffic class (2.2.8.9, 2.2.8.10).
        *((down and bytes.fromhex(down), up and bytes.fromhex(up), int(not down), 20, NONFATAL)
          for raw in ("34100000 03000012" + "00" * 8, "34100000 03000052" + "00" * 8,
                      "74100001 03000053" + "00" * 12, "34000000 03000012" + "00" * 8)
          for down, up in ((raw, None), (None, raw))),
    )

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [bench.write(1, 0x59, 1 << 16, 12)])  # Source Validation
        for down, up, function, bit, code in cases:
            told, _ = await bench.step(ctx, [down] if down else [], [(0, up)] if up else [])
            who = 0x0200 if function else 0x0100
            assert told == ([(who, code)] if code else [])
            f = bench.function(function)
            assert f.read(STATUS) == (1 << bit if bit else 0)
            severity = {NONFATAL: 2, COR: 1, None: 0}[code]
            assert f.read(DEVICE) >> 16 == severity | 8 * (bit == 20)
            assert f.read(COR_STATUS) == (1 << 13 if code == COR else 0)
            if bit:
                assert f.read(CAPS) & 31 == bit
                raw = down or up
                dwords = 4 if raw[0] & 0x20 else 3
                log = b"".join(f.read(LOG + n).to_bytes(4, "big") for n in range(4))
                assert log == raw[:4 * dwords].ljust(16, b"\0")
            assert bool(f.read(COMMAND) >> 30 & 1) == (code == NONFATAL)  # Signaled System Error
            up_rse = bench.function(0).read(SECONDARY) >> 30 & 1
            assert bool(up_rse) == (code == NONFATAL and function > 0)
            await bench.clear(ctx)

    bench.simulate(main, deadline=400_000)


@pytest.mark.parametrize("closes", [(COMMAND, 0x0143), (PMCSR, 3)], ids=["no master", "D3hot"])
def test_egress_blocking_is_for_what_would_leave(closes):
    """A request that the upstream port does not take is an Unsupported Request (7.5.1.1.3: "Memory
    and I/O Requests received at ... the Downstream side of a Switch Port must be handled as
    Unsupported Requests"; 5.3.1.4), also an AtomicOp or with a prefix that it would block
    (6.15.3)."""
    bench = Bench(64, 2, random.Random(seed()))
    swap = bytearray(memory_tlp(0x1000, write=True, requester=0x300))
    swap[0] |= 0x0D
    kinds = ((bytes(swap), 24), (b"\x90\0\0\0" + memory_tlp(0x1000, requester=0x300), 25))

    async def main(ctx):
        await start(bench, ctx)
        await bench.run(ctx, [bench.write(0, DEVICE2, 1 << 7 | 1 << 15, 3)])
        for closed in (False, True):
            if closed:
                await bench.run(ctx, [bench.write(0, *closes, 3)])
            for raw, bit in kinds:
                await bench.step(ctx, [], [(0, raw)])
                assert bench.function(0).read(STATUS) == 1 << (20 if closed else bit)
                await bench.clear(ctx)

    bench.simulate(main, deadline=400_000)


@pytest.mark.long
def test_aborts_of_the_requests_of_others():
    """In Secondary Status only a bridge's own requests count (7.5.1.3.7), of which there are none;
    in Status what the primary side receives (7.5.1.1.4)."""
    bench = Bench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        for status, bit in ((1, 13), (4, 12)):  # UR, CA
            for down, up, primary in ((None, completion(0x0008, status), ()),
                                      (completion(0x0300, status), None, (0, 1))):
                await bench.step(ctx, [down] if down else [], [(0, up)] if up else [])
                for n in range(3):
                    f = bench.function(n)
                    assert f.read(COMMAND) >> 16 & 0x3000 == (1 << bit if n in primary else 0)
                    assert f.read(SECONDARY) >> 16 & 0x3000 == 0
                await bench.clear(ctx)

    bench.simulate(main)


def test_a_slot_without_a_link_is_no_error():
    """Requests to an empty slot get UR or are dropped; no bit is set (2.9.1)."""
    bench = Bench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        bench.present(ctx, 2)
        for raw in (memory_tlp(WINDOW), memory_tlp(WINDOW, write=True), completion(0x300),
                    config_tlp(0x300, 0, type1=True)):
            told, _ = await bench.step(ctx, [raw])
            assert not told
        for n in range(3):
            f = bench.function(n)
            assert f.read(DEVICE) >> 16 == 0 and f.read(STATUS) == 0 and f.read(COR_STATUS) == 0

    bench.simulate(main)
    assert bench.totals["unsupported0"] and bench.totals["unclaimed0"]


def test_first_error_stays():
    """Header Log and First Error Pointer hold the first error until cleared; masks; resets."""
    bench = Bench(64, 2, random.Random(seed()))
    first = memory_tlp(OUTSIDE, write=True, wide=False, tag=1)
    second = memory_tlp(OUTSIDE + 0x1000, write=True, wide=False, tag=2)
    other = poison(memory_tlp(WINDOW, write=True, tag=3))

    def log(n=0):
        f = bench.function(n)
        return f.read(CAPS) & 31, f.read(LOG), f.read(LOG + 2)

    async def main(ctx):
        await start(bench, ctx)
        await bench.step(ctx, [first])
        assert log() == (20, 0x40000001, OUTSIDE)
        await bench.step(ctx, [second])
        await bench.step(ctx, [other])
        assert log() == (20, 0x40000001, OUTSIDE)
        assert bench.function(0).read(STATUS) == 1 << 20 | 1 << 12
        # Another one cleared: still the first. The first one cleared: free.
        await bench.step(ctx, [bench.write(0, STATUS, 1 << 12)])
        await bench.step(ctx, [second])
        assert log() == (20, 0x40000001, OUTSIDE)
        await bench.step(ctx, [bench.write(0, STATUS, 1 << 20)])
        await bench.step(ctx, [second])
        assert log() == (20, 0x40000001, OUTSIDE + 0x1000)
        await bench.clear(ctx)
        # Masked: the status bit and nothing else; no message.
        await bench.step(ctx, [bench.write(0, MASK, 1 << 20)])
        assert (await bench.step(ctx, [first]))[0] == []
        assert bench.function(0).read(STATUS) == 1 << 20
        assert log() == (0, 0x40000001, OUTSIDE + 0x1000)
        # Fatal: so are the advisory ones.
        await bench.step(ctx, [bench.write(0, MASK, 0), bench.write(0, SEVERITY, 1 << 20),
                               bench.write(0, STATUS, 1 << 20)])
        assert (await bench.step(ctx, [memory_tlp(OUTSIDE, wide=False)]))[0] == [(0x100, FATAL)]
        assert bench.function(0).read(DEVICE) >> 16 & 15 == 4 + 8 + 2  # non-fatal from before
        # An internal error is masked after reset; then it is one of the port, without a TLP.
        for enabled in (False, True):
            if enabled:
                await bench.step(ctx, [bench.write(2, MASK, 0)])
            ctx.set(bench.dut.internal_error, 2)
            await ctx.tick()
            ctx.set(bench.dut.internal_error, 0)
            bench.golden.internal_error(1)
            told, _ = await bench.step(ctx)
            assert told == ([(0x0208, FATAL)] if enabled else [])
            if not enabled:
                await bench.clear(ctx)
        assert log(2)[0] == 22 and bench.function(2).read(STATUS) == 1 << 22
        # The reset of the switch's downstream functions leaves AER as it is: sticky.
        await bench.step(ctx, [bench.write(0, BRIDGE, 1 << 22)])
        await bench.step(ctx, [bench.write(0, BRIDGE, 0)])
        assert log(2)[0] == 22 and bench.function(2).read(STATUS) == 1 << 22
        assert bench.function(2).read(DEVICE) >> 16 == 0 and bench.function(2).read(MASK) == 0

    bench.simulate(main, deadline=400_000)


@pytest.mark.long
def test_a_masked_error_takes_no_log():
    """First Error Pointer is free once its bit was cleared, though a masked error sets it again.

    The next error that is not masked is the first one (6.2.4.2).
    """
    bench = Bench(64, 1, random.Random(seed()))
    poisoned = poison(memory_tlp(WINDOW, write=True, tag=3))

    async def main(ctx):
        await start(bench, ctx)
        told, _ = await bench.step(ctx, [memory_tlp(OUTSIDE, write=True, wide=False, tag=1)])
        assert told == [(0x100, NONFATAL)] and bench.values[0, CAPS] & 31 == 20
        await bench.step(ctx, [bench.write(0, STATUS, 1 << 20)])
        assert bench.values[0, CAPS] & 31 == 0  # bit 0 is no error: nothing is logged
        await bench.step(ctx, [bench.write(0, MASK, 1 << 20)])
        told, _ = await bench.step(ctx, [memory_tlp(OUTSIDE, write=True, wide=False, tag=2)])
        assert told == [] and bench.values[0, STATUS] == 1 << 20
        assert bench.values[0, CAPS] & 31 == 0
        told, _ = await bench.step(ctx, [poisoned])
        assert told == [(0x100, COR)] and bench.values[0, STATUS] == 1 << 20 | 1 << 12
        assert bench.values[0, CAPS] & 31 == 12
        log = b"".join(bench.values[0, LOG + n].to_bytes(4, "big") for n in range(4))
        assert log == poisoned[:16]
        # The masked one does not free it, and neither does clearing its bit.
        await bench.step(ctx, [memory_tlp(OUTSIDE, write=True, wide=False, tag=4),
                               bench.write(0, STATUS, 1 << 20)])
        assert bench.values[0, CAPS] & 31 == 12 and bench.values[0, LOG + 1] == 0x0008_030F

    bench.simulate(main)


@pytest.mark.parametrize("width", some_widths(64, of=(32, 64, 128, 512)))
def test_the_log_has_the_header(width):
    """Not what comes behind it; prefixes in a log of their own, and a bit that says so.

    First byte most significant; prefixes that there are not read 0 (7.8.4.8, 7.8.4.12).
    """
    bench = Bench(width, 1, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        fmt, type = KINDS["MWr64"]
        for prefixes, port in ((0, UP), (1, UP), (4, UP), (0, 0), (3, 0)):
            raw = poison(Tlp(fmt, type, length=63, requester_id=0x300 if port == 0 else 8,
                             first_be=15, last_be=15, address=WINDOW + 0x100 if port else 0x1000,
                             payload=bytes(range(1, 253))).pack())
            raw = b"".join(bytes([0x9E, 0xA0 + n, n, 7]) for n in range(prefixes)) + raw
            if port == UP:
                await bench.step(ctx, [raw])
            else:
                await bench.step(ctx, [], [(port, raw)])
            n = port + 1
            log = [bench.values[n, LOG + word].to_bytes(4, "big") for word in range(4)]
            assert b"".join(log) == raw[4 * prefixes:4 * prefixes + 16]
            assert bench.values[n, CAPS] & 31 == 12
            assert bench.values[n, CAPS] >> 11 & 1 == (prefixes > 0)
            if prefixes:
                log = [bench.values[n, PREFIX_LOG + word] for word in range(4)]
                assert log == [0x9EA0_0007 + 0x1_0100 * word if word < prefixes else 0
                               for word in range(4)]
            await bench.clear(ctx)
            assert bench.values[n, CAPS] & 0x81F == 0

    bench.simulate(main, deadline=400_000)


def test_malformed():
    """A TLP that was removed before the switch is an error of the port it came to, fatal."""
    bench = Bench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        for port in (UP, 0, 1) * 4:
            told, _ = await bench.malformed(ctx, port)
            assert told == [(bench.golden.identifier(port) if port != UP else 0x0100, FATAL)]
            assert bench.function(port + 1).read(STATUS) == 1 << 18
            await bench.clear(ctx)

    bench.simulate(main)


def test_error_messages_of_devices():
    """Gates of both bridges, one by one; what they note of it (6.2.6)."""
    bench = Bench(64, 2, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx, report=False)
        for code in (COR, NONFATAL, FATAL):
            raw = message(code, 0, 0x0300)
            for n in (1, 0):  # the port, the upstream port: Bridge Control first
                assert (await bench.step(ctx, [], [(0, raw)]))[1] == []
                assert bool(bench.function(1).read(SECONDARY) >> 30 & 1) == (code != COR)
                await bench.step(ctx, [bench.write(n, BRIDGE, 2 << 16, 12)])
                if code != COR:
                    assert (await bench.step(ctx, [], [(0, raw)]))[1] == []
                    # By SERR# Enable, or by the one in Device Control.
                    await bench.step(ctx, [bench.write(n, COMMAND, 0x107, 3)] if n else
                                     [bench.write(n, DEVICE, 2 if code == NONFATAL else 4, 3)])
            assert (await bench.step(ctx, [], [(0, raw)]))[1] == [(UP, raw)]
            assert bool(bench.function(1).read(COMMAND) >> 30 & 1) == (code != COR)
            assert not bench.function(0).read(COMMAND) >> 30 & 1  # SERR# Enable is 0 there
            assert bool(bench.function(0).read(SECONDARY) >> 30 & 1) == (code != COR)
            await bench.step(ctx, [bench.write(n, register, data, enables) for n in (0, 1)
                                   for register, data, enables in (
                                       (BRIDGE, 0, 12), (DEVICE, 0, 3), (COMMAND, 7, 3))])
            await bench.clear(ctx)

    bench.simulate(main, deadline=400_000)


@pytest.mark.long
def test_gates_of_the_own_messages():
    """Unsupported Requests: which enables let the message out, by hand (6.2.6, Figure 6-2)."""
    bench = Bench(64, 1, random.Random(seed()))
    # Function, posted; its SERR# Enable and Device Control; for the port also SERR# Enable of
    # Bridge Control, of Command, and Device Control of the upstream port; the message.
    cases = (
        (0, True, (0, 0b0010), None), (0, True, (0, 0b1010), NONFATAL),
        (0, True, (0, 0b1000), None), (0, True, (1, 0b0000), NONFATAL),
        (0, False, (0, 0b0001), None), (0, False, (0, 0b1001), COR),
        (0, False, (1, 0b1110), None),
        (1, True, (1, 15, 0, 1, 15), None), (1, True, (1, 15, 1, 0, 0b1101), None),
        (1, True, (1, 15, 1, 0, 0b0010), NONFATAL), (1, True, (0, 0b1010, 1, 1, 0), NONFATAL),
        (1, False, (0, 0b1001, 1, 0, 0), COR), (1, False, (0, 0b1001, 0, 1, 15), None))

    async def main(ctx):
        await start(bench, ctx)
        for function, posted, gates, code in cases:
            port, (bridge, *up) = (gates[:2], gates[2:]) if function else ((0, 0), (0, *gates))
            await bench.step(ctx, [
                bench.write(n, register, data, 3) for n, (serr, control) in ((1, port), (0, up))
                for register, data in ((COMMAND, 7 | serr << 8), (DEVICE, control))
            ] + [bench.write(0, BRIDGE, bridge << 17, 12)])
            if function:
                bad = memory_tlp(WINDOW, write=posted, requester=0x300)
                told, _ = await bench.step(ctx, [], [(0, bad)])
            else:
                told, _ = await bench.step(ctx, [memory_tlp(OUTSIDE, write=posted, wide=False)])
            assert told == ([(0x200 if function else 0x100, code)] if code else [])

    bench.simulate(main, deadline=400_000)


def test_a_configuration_read_sees_earlier_errors():
    """Status registers read right behind the request that is an error."""
    bench = Bench(64, 1, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        bad = memory_tlp(OUTSIDE, write=True, wide=False)
        out = await bench.run(ctx, [bad, *(config_tlp(0x100, r) for r in REGISTERS)])
        values = {r: int.from_bytes(Tlp.unpack(raw).payload, "little")
                  for r, (_, raw) in zip(REGISTERS, out, strict=True)}
        assert values[STATUS] == 1 << 20 and values[LOG + 2] == OUTSIDE
        await bench.settled(ctx)
        bench.told, bench.to_tell = [], []

    bench.simulate(main)


def random_error_setup(rng, bench):
    """Writes to all that errors depend on."""
    for n in range(bench.ports + 1):
        yield bench.write(n, COMMAND, rng.choice([0x147, 0x007, 0x107, 0x047]), 3)
        yield bench.write(n, BRIDGE, rng.choice([3, 3, 2, 0, 1]) << 16, 12)
        yield bench.write(n, DEVICE, rng.choice([15, 15, 7, rng.getrandbits(4)]) | 0xFFFF0000)
        yield bench.write(n, MASK, rng.choice([0, 0, rng.getrandbits(32)]))
        yield bench.write(n, SEVERITY, rng.choice([0x462030, rng.getrandbits(32)]))
        yield bench.write(n, COR_MASK, rng.choice([0, 0x2000]))
        yield bench.write(n, STATUS, rng.getrandbits(32) | rng.choice([0, 0xFFFFFFFF]))
        yield bench.write(n, COR_STATUS, 0xFFFFFFFF)


@pytest.mark.parametrize(("width", "ports", "rounds", "steps"), [
    (64, 3, 1, 15), *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 3, 2, 25), (32, 1, 1, 20), (512, 2, 1, 20), (64, 8, 4, 150),
        (32, 3, 4, 100), (128, 4, 4, 100), (256, 2, 4, 100), (512, 8, 4, 100)))])
def test_random_steps(width, ports, rounds, steps):
    """Random traffic one TLP at a time: every register and message as the golden switch says."""
    rng = random.Random(seed() * 1000 + width + ports)
    bench = Bench(width, ports, rng, density=0.9)
    codes, kinds = set(), 0
    names = tuple(k for k in KINDS if not k.startswith("CfgWr"))

    async def main(ctx):
        nonlocal kinds
        for _ in range(rounds):
            bench.present(ctx, rng.getrandbits(ports) | rng.getrandbits(ports))
            await bench.step(ctx)  # what it says of that has its name of before
            await bench.run(ctx, random_configuration(rng, ports))
            await bench.step(ctx, list(random_error_setup(rng, bench)))
            for raw in random_traffic(rng, bench, steps, kinds=names):
                if rng.random() < 0.15:
                    raw = message(rng.choice([COR, NONFATAL, FATAL]), 0, rng.choice([
                        int.from_bytes(raw[4:6], "big"), 0x300]))
                port = rng.choice([UP, *range(ports)])
                if rng.random() < 0.1 and (port == UP or bench.golden.link_active(port)):
                    told, _ = await bench.malformed(ctx, port)
                elif rng.getrandbits(1):
                    told, _ = await bench.step(ctx, [raw])
                else:
                    told, _ = await bench.step(ctx, [], [(max(port, 0), raw)])
                codes.update(code for _, code in told)
            for f in (bench.golden.up, *bench.golden.down):
                kinds |= f.read(STATUS)

    bench.simulate(main, deadline=4_000_000)
    print(codes, hex(kinds))
    assert codes & {COR, NONFATAL, FATAL} and kinds & (kinds - 1)


def test_storm():
    """Errors from both sides back to back: none is forgotten, good TLPs pass in order.

    Each is told, or counted as the same as one that waits to be told.
    """
    rng = random.Random(seed())
    bench = Bench(64, 2, rng)

    async def main(ctx):
        await start(bench, ctx)
        good = [memory_tlp(WINDOW, write=True, tag=n) for n in range(10)]
        bad = [memory_tlp(OUTSIDE, write=True, wide=False, tag=n) for n in range(10)]
        up = [(n % 2, memory_tlp(WINDOW + (n % 2 << 32), write=True,
                                 requester=0x300 + 0x100 * (n % 2), tag=n)) for n in range(10)]
        advisory = [(n % 2, memory_tlp(WINDOW + (n % 2 << 32), requester=0x300 + 0x100 * (n % 2),
                                       tag=n)) for n in range(10)]
        told, _ = await bench.step(ctx, [t for pair in zip(good, bad, strict=True) for t in pair],
                                   [t for pair in zip(up, advisory, strict=True) for t in pair])
        assert set(told) == {(0x100, NONFATAL), *((who, code) for who in (0x200, 0x208)
                                                 for code in (NONFATAL, COR))}

    bench.simulate(main, deadline=400_000)


def test_the_map_has_what_is_reported():
    for kind in (UPSTREAM, DOWNSTREAM):
        fmap = function_map(kind)
        assert [fmap.dword(f"Header Log {n}") for n in range(4)] == list(range(LOG, LOG + 4))
        assert (fmap.dword("Uncorrectable Error Status"), fmap.dword("Correctable Error Mask")) == (
            STATUS, COR_MASK)
