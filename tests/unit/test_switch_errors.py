"""dxpu.switch.errors: status bits, AER and error messages, against the golden switch."""

import random

import pytest
from switch_bench import SwitchBench, config_tlp, random_traffic
from test_switch import enumerate_tree, memory_tlp
from test_switch_routing import random_configuration

from dxpu.switch.config_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu.tlp.types import Fmt, Type
from dxpu_sim.golden.switch import UP
from dxpu_sim.golden.tlp import KINDS, Tlp
from dxpu_sim.testbench import seed

COMMAND, SECONDARY, DEVICE, BRIDGE = 1, 7, 0x1A, 0xF
STATUS, MASK, SEVERITY, COR_STATUS, COR_MASK, CAPS, LOG = range(0x41, 0x48)
REGISTERS = (COMMAND, SECONDARY, DEVICE, *range(STATUS, LOG + 4))
NONFATAL, FATAL, COR = 0x31, 0x33, 0x30


class Bench(SwitchBench):
    """Compares the error registers of all functions, and the messages, after each step."""

    registers = REGISTERS
    patience = 60

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.values = {}
        self.more = []  # processes

    @property
    def background(self):
        return [*super().background, self._follow, *self.more]

    async def _follow(self, ctx):
        async for *_, update in ctx.tick().sample(self.dut.switch.config):
            if update.strobe:
                self.values[update.function, update.register] = update.value

    def _differences(self):
        for n, f in enumerate((self.golden.up, *self.golden.down)):
            for register in self.registers:
                expected = f.read(register)
                if register == COMMAND:
                    expected &= ~(1 << 19)  # Interrupt Status is not in the memory
                if self.values.get((n, register), 0) != expected:
                    yield n, 4 * register, self.values.get((n, register)), expected

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
        # It is logged only as far as its first byte says that the header goes.
        self.golden.malformed(header[:16 if header[0] >> 5 & 1 else 12], port)
        await ctx.tick().until(self.dut.malformed.ready)
        ctx.set(self.dut.malformed.valid, 0)
        return await self.step(ctx)

    async def settled(self, ctx):
        for _ in range(400):
            if sorted(self.told) == sorted(self.to_tell) and not any(self._differences()):
                break
            await ctx.tick().repeat(20)
        await ctx.tick().repeat(20)
        assert sorted(self.told) == sorted(self.to_tell)
        assert not list(self._differences())

    def function(self, n):
        return self.golden.down[n - 1] if n else self.golden.up

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
        assert log() == (20, 0x40000001, OUTSIDE + 0x1000)
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


@pytest.mark.parametrize("width", [64, 512])
def test_the_log_has_the_header(width):
    """Not what comes behind it, however many prefixes and however much data there are."""
    bench = Bench(width, 1, random.Random(seed()))

    async def main(ctx):
        await start(bench, ctx)
        for prefixes in (0, 4):
            payload = bytes(range(1, 253))
            fmt, type = KINDS["MWr64"]
            raw = poison(Tlp(fmt, type, length=63, requester_id=8, first_be=15, last_be=15,
                             address=WINDOW + 0x100, payload=payload).pack())
            raw = b"".join(bytes([0x90, n, n, n]) for n in range(prefixes)) + raw
            await bench.step(ctx, [raw])
            log = [bench.values[0, LOG + n].to_bytes(4, "big") for n in range(4)]
            assert b"".join(log) == raw[4 * prefixes:4 * prefixes + 16]
            await bench.clear(ctx)

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
    (64, 3, 2, 25), (32, 1, 1, 20), (512, 2, 1, 20),
    *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 8, 4, 150), (32, 3, 4, 100), (128, 4, 4, 100), (256, 2, 4, 100),
        (512, 8, 4, 100)))])
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
    """Errors from both sides back to back: none is forgotten, good TLPs pass in order."""
    rng = random.Random(seed())
    bench = Bench(64, 2, rng)

    async def main(ctx):
        await start(bench, ctx)
        good = [memory_tlp(WINDOW, write=True, tag=n) for n in range(10)]
        bad = [memory_tlp(OUTSIDE, write=True, wide=False, tag=n) for n in range(10)]
        up = [(n % 2, memory_tlp(0x1000, write=True, requester=0x300 + 0x100 * (n % 2), tag=n))
              for n in range(10)]
        own = [(n % 2, memory_tlp(WINDOW + (n % 2 << 32), requester=0x300 + 0x100 * (n % 2),
                                  tag=n)) for n in range(10)]
        told, _ = await bench.step(ctx, [t for pair in zip(good, bad, strict=True) for t in pair],
                                   [t for pair in zip(up, own, strict=True) for t in pair])
        assert sorted(told) == sorted([(0x100, NONFATAL)] * 10 + [(0x200, COR)] * 5
                                      + [(0x208, COR)] * 5)

    bench.simulate(main, deadline=400_000)


def test_cycles():
    """How long errors keep configuration requests waiting."""
    bench = Bench(64, 2, random.Random(seed()))
    waits = []

    async def watch(ctx):
        async for *_, hold in ctx.tick().sample(bench.dut.switch._space.hold):
            waits.append(hold)

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        await bench.clear(ctx)
        waits.clear()
        await bench.step(ctx, [memory_tlp(OUTSIDE, wide=False)])
        assert sum(waits) == 23
        await bench.clear(ctx)
        await bench.step(ctx, [bench.write(n, register, data, enables) for n in (0, 1)
                               for register, data, enables in (
                                   (COMMAND, 0x107, 3), (DEVICE, 0xF, 3), (BRIDGE, 2 << 16, 12))])
        waits.clear()
        await bench.step(ctx, [], [(0, memory_tlp(WINDOW, write=True, requester=0x300))])
        assert sum(waits) == 66

    bench.more = [watch]
    bench.simulate(main)


def test_the_map_has_what_is_reported():
    for kind in (UPSTREAM, DOWNSTREAM):
        fmap = function_map(kind)
        assert [fmap.dword(f"Header Log {n}") for n in range(4)] == list(range(LOG, LOG + 4))
        assert (fmap.dword("Uncorrectable Error Status"), fmap.dword("Correctable Error Mask")) == (
            STATUS, COR_MASK)
