"""A soft GPU and a host that sends arbitrary TLPs, right or wrong, built by the bench.

The host is plain Python on the golden TLPs. It checks every TLP of the GPU against the rules, and
answers the GPU's reads in any order and in any pieces.
"""

import os
import random

import cocotb
from cocotb.triggers import Event, Timer

from dxpu.endpoint.register_map import COUNTERS, REGISTERS
from dxpu.tlp.types import CompletionStatus, Malformed, TlpClass
from dxpu_model.tlp import KINDS, Tlp, classify, complete, malformed, random_tlp
from dxpu_sim.pcie.hostile import Aim, HostileSource
from dxpu_sim.pcie.ports import Mailbox, until
from dxpu_sim.pcie.raw_host import answer, check_answer, enabled

from .bench import COMMAND, DEVICE_CONTROL, DEVICE_STATUS, EXPRESS, MSI, PLENTY, VRAM, WIPE_NS, \
    give_credits
from .gpu import COPY_TO_GPU, COPY_TO_HOST, Command

SC, UR, CA = CompletionStatus.SC, CompletionStatus.UR, CompletionStatus.CA
#: IDs and addresses.
GPU, ROOT = 5 << 8, 0x10
BAR0, BAR2 = 0xe000_0000, 0x40_0000_0000
MEMORY, MEMORY_SIZE, RING, FENCE, MESSAGES = 0x1_8765_0000, 0x20000, 0x9000_0000, 0x9000_1000, \
    0xfee0_0000
NAMES = REGISTERS | COUNTERS


class Host:
    """A root complex under direct control of the tests."""

    def __init__(self, dut, *, credits=PLENTY, seed=0):
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]) + seed)
        give_credits(dut, credits)
        dut.hot_reset.value = 0
        self.mailbox = Mailbox(dut, "host")
        self.mailbox.received.append(self._receive)
        self.memory = bytearray(self.rng.randbytes(MEMORY_SIZE))
        self.ring = bytearray(4096)
        self.fence = 0
        self.head = 0
        self.messages: list[int] = []
        self.completions: dict[int, list[Tlp]] = {}
        self.reads: list[Tlp] = []
        #: Reads without their last completion.
        self.open: dict[int, Tlp] = {}
        self.arrived = Event()
        self.acknowledged = 0
        self.max_payload, self.max_read, self.read_size, self.tags = 128, 512, 128, 8
        self._tag = 0

    async def start(self):
        """Reset the GPU and configure it."""
        await Timer(1, "us")
        self.dut.hot_reset.value = 1
        await until(lambda: not int(self.dut.link.value), "link", timeout_ns=20_000, poll_ns=8)
        # TLPs of the GPU still arrive; TLPs to the GPU are dropped.
        await Timer(3, "us")
        self.dut.hot_reset.value = 0
        for left in (self.open, self.reads, self.messages, self.completions):
            left.clear()
        self.fence = self.head = 0
        self.max_payload, self.max_read, self.read_size, self.tags = 128, 512, 128, 8
        await until(lambda: int(self.dut.link.value), "link", timeout_ns=1000 + WIPE_NS, poll_ns=8)
        await Timer(1, "us")
        for register, value in (
                (0x10, BAR0), (0x18, BAR2 & 0xffff_ffff), (0x1c, BAR2 >> 32), (COMMAND, 6),
                (MSI + 4, MESSAGES), (MSI + 8, 0), (MSI + 12, 0x4140), (MSI, 0x31 << 16)):
            await self.config(register, value)
        for name, value in (("RING_LOW", RING), ("RING_SIZE", 16), ("FENCE_LOW", FENCE)):
            await self.write(name, value)

    # TLPs of the GPU.

    def _receive(self, record):
        tlp = Tlp.unpack(record.raw)
        info = classify(record.raw)
        assert malformed(record.raw, self.max_payload, completer=True) == Malformed.NONE, tlp
        assert info.cls.value == record.cls and not tlp.ep and not tlp.at, tlp
        assert info.cls is TlpClass.CPL or not tlp.tc and not tlp.attr, tlp
        if info.cls is TlpClass.CPL:
            assert tlp.completer_id == GPU and tlp.requester_id == ROOT
            self.completions.setdefault(tlp.tag, []).append(tlp)
        elif info.cls is TlpClass.NP:
            assert tlp.requester_id == GPU and tlp.kind in ("MRd32", "MRd64"), tlp
            assert tlp.kind == ("MRd64" if tlp.address >> 32 else "MRd32")
            limit = min(self.max_read, self.read_size)
            assert tlp.address % limit + 4 * tlp.length <= limit or tlp.address & ~31 == (
                tlp.address) and RING <= tlp.address < RING + 4096
            assert tlp.tag not in self.open and tlp.tag < 32 and len(self.open) < self.tags
            self.open[tlp.tag] = tlp
            self.reads.append(tlp)
        elif info.is_message:
            assert (tlp.requester_id, tlp.message_code, tlp.type) == (GPU, 0x1b, 0x15)
            self.acknowledged += 1
        else:
            assert tlp.requester_id == GPU
            assert tlp.kind == ("MWr64" if tlp.address >> 32 else "MWr32"), tlp
            assert tlp.address % self.max_payload + 4 * tlp.length <= self.max_payload
            self._write(tlp)
        self.arrived.set()

    def _write(self, tlp):
        if tlp.address == MESSAGES:
            assert tlp.length == 1 and tlp.first_be == 15
            self.messages.append(int.from_bytes(tlp.payload, "little"))
            return
        if tlp.address == FENCE:
            self.fence = int.from_bytes(tlp.payload, "little")
            return
        for n, on in enumerate(enabled(tlp)):
            if on:
                assert MEMORY <= tlp.address + n < MEMORY + MEMORY_SIZE
                self.memory[tlp.address + n - MEMORY] = tlp.payload[n]

    # TLPs of the host.

    async def send(self, tlp):
        """Send a TLP, given as an object or as bytes."""
        await self.mailbox.send(tlp if isinstance(tlp, bytes) else tlp.pack())

    async def request(self, tlp, *, timeout_ns=100_000):
        """Send a non-posted request; returns its completions."""
        self._tag = (self._tag + 1) % 512
        tlp.tag, tlp.requester_id = self._tag, ROOT
        await self.send(tlp)
        waited = 0
        while not self.whole(tlp):
            await Timer(80, "ns")
            waited += 80
            assert waited < timeout_ns, f"no completion: {tlp}"
        return self.completions.pop(tlp.tag)

    def whole(self, tlp):
        """Whether all completions of a request have come."""
        last = self.completions.get(tlp.tag, [None])[-1]
        return last is not None and (last.status != 0 or tlp.kind[:3] != "MRd" or (
            last.byte_count <= 4 * last.length - (last.lower_address & 3)))

    async def config(self, register, value=None, **fields):
        """Read or write a dword of configuration space; returns the dword or the status."""
        write = value is not None
        tlp = Tlp(*KINDS["CfgWr0" if write else "CfgRd0"], length=1, first_be=15, target_id=GPU,
                  register=register // 4, payload=value.to_bytes(4, "little") if write else b"",
                  **fields)
        completion, = await self.request(tlp)
        assert (completion.byte_count, completion.lower_address) == (4, 0)
        if write:
            assert completion.kind == "Cpl"
            return completion.status
        assert completion.status == 0
        return int.from_bytes(completion.payload, "little")

    async def sizes(self, payload, read):
        """Set Max_Payload_Size and Max_Read_Request_Size by their codes."""
        await self.config(DEVICE_CONTROL, payload << 5 | read << 12)
        self.max_payload, self.max_read = 128 << payload, 128 << read

    async def read(self, name):
        """Value of a register."""
        tlp = Tlp(*KINDS["MRd32"], length=1, first_be=15, address=BAR0 + NAMES[name])
        completion, = await self.request(tlp)
        assert completion.status == 0 and completion.length == 1
        return int.from_bytes(completion.payload, "little")

    async def write(self, name, value):
        """Write a register; posted."""
        await self.send(Tlp(*KINDS["MWr32"], length=1, first_be=15, address=BAR0 + NAMES[name],
                            requester_id=ROOT, payload=value.to_bytes(4, "little")))
        if name == "READ_SIZE":
            self.read_size = value
        if name == "TAGS":
            self.tags = value

    async def counts(self):
        """All counters other than 0."""
        found = {name: await self.read(name) for name in ("ERROR", "UNSUPPORTED", *COUNTERS)}
        return {name: count for name, count in found.items() if count}

    # Copies.

    async def command(self, opcode, host, vram, length, *, vector=0):
        """Queue a command."""
        self.head += 1
        place = (self.head - 1) % 16 * 32
        self.ring[place:place + 32] = Command(opcode, 1 | vector << 8, host, vram, length,
                                              self.head).pack()
        await self.write("DOORBELL", self.head)

    async def done(self, *, timeout_ns=400_000):
        """Wait for the interrupt of the last command; its fence must have come before."""
        await until(lambda: self.messages, "an interrupt", timeout_ns=timeout_ns, poll_ns=200)
        assert self.messages and self.fence == self.head, (self.messages, self.fence, self.head)
        return self.messages.pop(0)

    def held(self, address, length):
        """Bytes of host memory."""
        if RING <= address < RING + 4096:
            return bytes(self.ring[address - RING:address - RING + length])
        assert address >= MEMORY and address + length <= MEMORY + MEMORY_SIZE
        return bytes(self.memory[address - MEMORY:address - MEMORY + length])

    def pieces(self, read):
        """Completions of a read, cut at random."""
        return answer(read, self.held, self.rng, completer_id=ROOT, max_payload=self.max_payload)

    async def serve(self, *, order=True, noise=None):
        """Answer reads for ever, in any order; ``noise`` sends TLPs in between."""
        flows = []
        while True:
            while self.reads:
                read = self.reads.pop(0)
                flows.append((read, list(self.pieces(read))))
            if not flows:
                self.arrived.clear()
                if not self.reads:
                    await self.arrived.wait()
                # Let several reads come together.
                await Timer(self.rng.choice([8, 300, 1500]), "ns")
                continue
            n = self.rng.randrange(len(flows)) if order else 0
            read, pieces = flows[n]
            if noise is not None and self.rng.random() < 0.7:
                await noise(read, pieces[0])
            if len(pieces) == 1:
                del flows[n]
                del self.open[read.tag]
            await self.send(pieces.pop(0))

    async def copies(self, count, *, longest=3000, meanwhile=None):
        """Make random copies, and compare their effects with a model."""
        model = bytearray(await self.vram())
        for n in range(count):
            length = self.rng.choice([0, 1, 2, 5, self.rng.randrange(200),
                                      self.rng.randrange(longest)])
            vram = self.rng.randrange(VRAM - length + 1)
            offset = self.rng.randrange(MEMORY_SIZE - length)
            before = bytes(self.memory)
            opcode = self.rng.choice([COPY_TO_GPU, COPY_TO_HOST])
            await self.command(opcode, MEMORY + offset, vram, length, vector=n % 8)
            if meanwhile is not None:
                await meanwhile()
            assert await self.done() == 0x4140 | n % 8
            if opcode == COPY_TO_GPU:
                model[vram:vram + length] = before[offset:offset + length]
                assert self.memory == before
            else:
                assert self.memory == before[:offset] + model[vram:vram + length] + before[
                    offset + length:], (offset, vram, length)
        assert await self.vram() == bytes(model)

    async def vram(self):
        """Content of the video memory, read through its BAR."""
        found = b""
        for address in range(BAR2, BAR2 + VRAM, 4096):
            pieces = await self.request(Tlp(*KINDS["MRd64"], length=1024, first_be=15, last_be=15,
                                            address=address))
            found += b"".join(piece.payload for piece in pieces)
        return found

    def finish(self):
        """Check that nothing is left over, and that nothing was sent without credits."""
        assert not self.completions and not self.messages and not self.reads and not self.open
        assert int(self.dut.overrun.value) == 0


@cocotb.test()
async def copies_in_any_order(dut):
    """Completions in any order and in pieces, with all sizes of payloads, reads and tags."""
    host = Host(dut)
    await host.start()
    serving = cocotb.start_soon(host.serve())
    for payload, read, size, tags in ((0, 0, 64, 8), (1, 5, 4096, 3), (2, 2, 4, 8), (2, 5, 512, 1)):
        await host.sizes(payload, read)
        await host.write("READ_SIZE", size)
        await host.write("TAGS", tags)
        await host.copies(10, longest=800 if size == 4 else 3000)
    serving.cancel()
    assert await host.counts() == {}
    host.finish()


@cocotb.test()
async def forged_completions(dut):
    """Completions that differ slightly from expected completions: all are dropped and counted."""
    host = Host(dut, seed=1)
    await host.start()
    sent = 0

    async def forge(read, piece):
        nonlocal sent
        wrong = Tlp.unpack(piece.pack())
        what = host.rng.randrange(8)
        if what == 0:  # the entry is in use, so no other read can have this tag
            wrong.tag ^= 1 << host.rng.randrange(3, 10)
        elif what == 1:
            wrong.requester_id ^= 1 << host.rng.randrange(16)
        elif what == 2:
            wrong.byte_count = (wrong.byte_count ^ 1 << host.rng.randrange(12)) or 4096
        elif what == 3:
            wrong.lower_address ^= 1 << host.rng.randrange(7)
        elif what == 4:
            wrong.type |= 1  # completion of a locked read
        elif what == 5:
            wrong.fmt, wrong.length, wrong.payload = 0, 0, b""  # successful, without data
        elif what == 6:
            wrong.status = UR.value  # with data
        else:
            due = wrong.byte_count + (wrong.lower_address & 3)
            wrong.payload = bytes(4 * ((due + 3) // 4 + 1))
            wrong.length = len(wrong.payload) // 4
            if len(wrong.payload) > host.max_payload:
                return  # malformed
        wrong.payload = host.rng.randbytes(len(wrong.payload))
        sent += 1
        await host.send(wrong)

    serving = cocotb.start_soon(host.serve(noise=forge))
    await host.copies(80)
    serving.cancel()
    assert sent > 100 and await host.counts() == {"UNEXPECTED": sent & 0xff}
    assert await host.config(EXPRESS + 8) >> 16 == 0b0001  # correctable error, advisory
    host.finish()


@cocotb.test()
async def every_read_is_answered_exactly(dut):
    """Reads of video memory: any length, address and byte enables, whole and in legal pieces."""
    host = Host(dut, seed=2)
    await host.start()
    memory = host.rng.randbytes(VRAM)
    for start in range(0, VRAM, 128):
        await host.send(Tlp(*KINDS["MWr64"], length=32, first_be=15, last_be=15,
                            address=BAR2 + start, payload=memory[start:start + 128]))
    memory = bytearray(memory)
    for n in range(600):
        if n % 200 == 0:
            await host.sizes(n // 200, 2)
        tlp = random_tlp(host.rng, kinds=("MRd64", "MWr64"), max_payload=host.max_payload // 4)
        if not tlp.fmt & 2 and host.rng.random() < 0.2:
            tlp.length = host.rng.randrange(1, 1025 - tlp.address % 4096 // 4)
        if malformed(tlp.pack(), host.max_payload) != Malformed.NONE or tlp.th:
            continue
        offset = host.rng.randrange(0, VRAM, 4096) + tlp.address % 4096
        tlp.address, tlp.prefixes, tlp.ep, tlp.at = BAR2 + offset, (), 0, 0
        tlp.tc = tlp.attr = 0
        if tlp.fmt & 2:
            await host.send(tlp)
            for k, on in enumerate(enabled(tlp)):
                if on:
                    memory[offset + k] = tlp.payload[k]
            continue
        pieces = await host.request(tlp)
        check_answer(tlp, pieces, memory[offset:offset + 4 * tlp.length],
                     max_payload=host.max_payload)
        assert len(pieces) <= 2 + tlp.length * 4 // host.max_payload
    assert await host.vram() == bytes(memory)
    assert await host.counts() == {}
    host.finish()


@cocotb.test()
async def poison(dut):
    """Poisoned data is not used: writes, configuration writes, completions."""
    host = Host(dut, seed=3)
    await host.start()
    before = await host.vram()
    for address in (BAR2 + 16, BAR0 + REGISTERS["SCRATCH"]):
        await host.send(Tlp(*KINDS["MWr64" if address >> 32 else "MWr32"], length=1, first_be=15,
                            address=address, payload=b"evil", ep=1, requester_id=ROOT))
    assert await host.config(0x3c, 0x55, ep=1) == UR.value
    assert await host.config(0x3c) & 0xff == 0 and await host.read("SCRATCH") == 0
    assert await host.vram() == before
    await host.command(COPY_TO_GPU, MEMORY, 0, 100)
    for poisoned in (0, 1):
        await until(lambda: host.reads, "a read", timeout_ns=10_000, poll_ns=80)
        read = host.reads.pop(0)
        del host.open[read.tag]
        for piece in host.pieces(read):
            piece.ep = poisoned
            await host.send(piece)
            if poisoned:
                break
    await host.done()
    assert await host.vram() == before
    assert await host.counts() == {"POISONED": 4, "ERROR": 1, "UNSUPPORTED": 1}
    assert await host.read("STATUS") == 2
    assert await host.config(0x04) >> 16 == 1 << 15 | 1 << 4  # detected parity error
    host.finish()


@cocotb.test()
async def time_is_up(dut):
    """A read without answer fails its command; late completions are dropped; later copies
    succeed."""
    host = Host(dut, seed=4)
    await host.start()
    late = []
    for n in range(5):
        await host.command(COPY_TO_GPU, MEMORY, 0, 100)
        await until(lambda: host.reads, "a read", timeout_ns=60_000, poll_ns=80)
        if n != 1:  # n == 1: the command itself is not answered
            read = host.reads.pop(0)
            del host.open[read.tag]
            for piece in host.pieces(read):
                await host.send(piece)
            await until(lambda: host.reads, "a read", timeout_ns=60_000, poll_ns=80)
        read = host.reads.pop(0)
        del host.open[read.tag]
        late += host.pieces(read)
        if n == 1:
            await Timer(60, "us")
            assert not host.messages
        else:
            await host.done()
        assert await host.read("STATUS") == 2
    counts = {"ERROR": 5, "TIMEOUTS": 5}
    assert await host.counts() == counts
    before = await host.vram()
    for piece in late:
        await host.send(piece)
    assert await host.counts() == counts | {"UNEXPECTED": len(late)}
    assert await host.vram() == before
    # No timeout if disabled.
    await host.config(EXPRESS + 0x28, 1 << 4)
    await host.command(COPY_TO_GPU, MEMORY, 0, 100)
    await until(lambda: host.reads, "a read", timeout_ns=10_000, poll_ns=80)
    await Timer(100, "us")
    assert await host.read("STATUS") == 3
    assert await host.config(DEVICE_STATUS & ~3) >> 21 & 1  # Transactions Pending
    serving = cocotb.start_soon(host.serve())
    await host.done()
    await host.write("ERROR", 0)
    await host.copies(3)
    serving.cancel()
    host.finish()


@cocotb.test()
async def nothing_waits_for_completions_or_reads(dut):
    """Without credits for completions, or for reads, posted requests are taken and interrupts
    leave; completions pass a blocked read.
    """
    host = Host(dut, credits=((4, 64), (1, 0), (1, 32)), seed=5)
    await host.start()
    await host.write("SCRATCH", 7)
    host.mailbox.stall(2, True)
    reads = [Tlp(*KINDS["MRd32"], length=1, first_be=15, address=BAR0 + REGISTERS["SCRATCH"],
                 tag=900 + n, requester_id=ROOT) for n in range(6)]
    for read in reads:
        await host.send(read)
    for n in range(40):
        await host.write("SCRATCH", 100 + n)
    await host.write("INTERRUPT", 4)
    await until(lambda: host.messages, "an interrupt", timeout_ns=20_000, poll_ns=80)
    assert host.messages.pop() == 0x4144 and not host.completions
    host.mailbox.stall(2, False)
    await until(lambda: all(host.whole(read) for read in reads), "completions", timeout_ns=20_000,
                poll_ns=80)
    assert host.completions.pop(905)[0].payload[0] == 139
    for read in reads[:-1]:
        del host.completions[read.tag]
    # Reads are blocked: after two reads no third read leaves.
    host.mailbox.stall(1, True)
    await host.command(COPY_TO_GPU, MEMORY, 0, 1000)
    await Timer(3, "us")
    assert await host.read("SCRATCH") == 139 and not host.reads
    await host.write("INTERRUPT", 5)
    await until(lambda: host.messages, "an interrupt", timeout_ns=20_000, poll_ns=80)
    assert host.messages.pop() == 0x4145
    host.mailbox.stall(1, False)
    serving = cocotb.start_soon(host.serve())
    await host.done()
    await host.copies(3)
    serving.cancel()
    host.finish()


@cocotb.test()
async def hostile_traffic(dut):
    """Arbitrary requests: well-formed requests are answered once, exactly; all other TLPs only
    change counters, and copies go on meanwhile.
    """
    host = Host(dut, seed=6)
    await host.start()
    source = HostileSource(host.rng, Aim(
        addresses=[BAR0 + 0x1000, 0xd000_0000, BAR2 + VRAM], identifiers=[GPU, GPU + 1],
        requesters=[ROOT]), discards=0)
    due, bad = {}, 0

    async def meanwhile():
        nonlocal bad
        for _ in range(100):
            hostile = source.draw()
            if len(hostile.raw) > 2048:  # too large for the queues of the bench
                continue
            fault = malformed(hostile.raw, host.max_payload, completer=True) != Malformed.NONE
            info = None if fault else classify(hostile.raw)
            if not fault and not info.prefix_dwords and info.cls is TlpClass.NP:
                tlp = Tlp.unpack(hostile.raw)
                # The lower half of the tags belongs to the copies.
                if tlp.tag in due or tlp.tag < 512 or tlp.requester_id != ROOT or (
                        BAR0 <= tlp.address < BAR0 + 0x1000 or BAR2 <= tlp.address < BAR2 + VRAM):
                    continue
                due[tlp.tag] = tlp
            elif not fault and not info.prefix_dwords and info.cls is TlpClass.P and (
                    info.is_memory and BAR2 <= info.address < BAR2 + VRAM
                    or info.is_memory and BAR0 <= info.address < BAR0 + 0x1000):
                continue
            elif fault or info.prefix_dwords:
                bad += 1
            await host.send(hostile.raw)

    serving = cocotb.start_soon(host.serve())
    await host.copies(20, longest=600, meanwhile=meanwhile)
    await until(lambda: all(tag in host.completions for tag in due), "answers", timeout_ns=50_000)
    for tag, tlp in due.items():
        completion, = host.completions.pop(tag)
        flush = (tlp.kind[:3] == "MRd" and "Lk" not in tlp.kind and tlp.at != 1
                 and (tlp.length, tlp.first_be, tlp.th) == (1, 0, 0)
                 and BAR0 <= tlp.address < BAR0 + 0x10000)
        good = flush or tlp.kind == "CfgRd0" and tlp.target_id & 7 == 0
        assert completion.status == (SC if good else UR).value, tlp
        if not good:
            assert completion.pack() == complete(tlp, UR, GPU).pack(), tlp
    serving.cancel()
    assert len(due) > 100 and bad > 200
    assert await host.read("MALFORMED") == bad & 0xff
    host.finish()


@cocotb.test()
async def resets_at_any_time(dut):
    """Hot resets in the middle of TLPs in both directions, with idle cycles everywhere. Each life
    begins anew, undisturbed by remains of former lives.
    """
    host = Host(dut, seed=7)
    host.mailbox.gaps(send=0.2, receive=0.2)
    for n in range(25):
        await host.start()
        assert await host.counts() == {} and await host.read("HEAD") == 0
        serving = cocotb.start_soon(host.serve())
        await host.copies(1, longest=400)
        for opcode in (COPY_TO_GPU, COPY_TO_HOST)[n % 2:]:
            await host.command(opcode, MEMORY + n, 0, 3000)
        for _ in range(n % 5):
            await host.send(Tlp(*KINDS["MWr64"], length=32, first_be=15, last_be=15,
                                address=BAR2, payload=bytes(128)))
        await Timer(host.rng.randrange(8, 8000, 8), "ns")
        serving.cancel()
        host.dut.hot_reset.value = 1
        await Timer(host.rng.randrange(8, 800, 8), "ns")
    await host.start()
    assert await host.read("STATUS") == 0
    host.finish()
