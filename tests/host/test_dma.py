"""`dxpu_host`'s requests and their tags, and the DMA and interrupts of devices."""

import random
from collections import Counter, deque
from types import SimpleNamespace

import pytest

from dxpu.tlp.types import CompletionStatus, Fmt, Type
from dxpu_host import Aborted, Host, Region, SlotLost, Timeout, Unsupported
from dxpu_host.box import TlpCame
from dxpu_host.memory import Memory, Space
from dxpu_host.queues import class_of, units_of
from dxpu_host.requests import Requests, Retry
from dxpu_host.slots import INTERRUPTS, HostSlot, interrupt_address
from dxpu_host.tlp import config_request, memory_reads, memory_writes
from dxpu_model import wire_random
from dxpu_model.tlp import Tlp, complete, random_tlp


# Requests

def requested(length, address=0x1000, requests=None):
    requests = requests or Requests()
    tlp, = memory_reads(address, length, 4096)
    return requests, requests.add(tlp, 1.0)


def answers(tlp, data, sizes):
    """Completions of a read, of these sizes."""
    position, left = tlp.address & 0x7F, len(data)
    for size in sizes:
        part, data = data[:size], data[size:]
        yield Tlp(Fmt.HEADER_3_DATA, Type.COMPLETION, length=size // 4, payload=part, tag=tlp.tag,
                  status=0, byte_count=left, lower_address=position & 0x7F)
        position, left = position + size, left - size


def test_completions_are_put_together():
    requests, request = requested(256)
    data = bytes(range(256))
    for part in answers(request.tlp, data, (64, 128, 64)):
        assert not request.done
        requests.complete(part)
    assert request.done and request.result() == data and requests.free


@pytest.mark.parametrize("change", [{"byte_count": 252}, {"lower_address": 4}, {"tag": 1},
                                    {"requester_id": 5}, {"payload": b"", "fmt": Fmt.HEADER_3}],
                         ids=str)
def test_completions_that_do_not_fit_are_dropped(change):
    requests, request = requested(256)
    part = next(answers(request.tlp, bytes(256), (256,)))
    assert not requests.complete(Tlp(**{**vars(part), **change}))
    assert not request.done and request.data == b""


@pytest.mark.parametrize("address, length, dwords", [
    (0x1000, 4, 2), (0x1000, 256, 65), (0x1003, 1, 2), (0x1003, 2, 3), (0x1002, 5, 3)])
def test_a_completion_with_more_than_was_asked_for_is_dropped(address, length, dwords):
    """Byte Count is that of the request, yet there is a dword more than its bytes take."""
    requests, request = requested(length, address)
    payload = bytes(n % 251 for n in range(4 * dwords))
    part = Tlp(Fmt.HEADER_3_DATA, Type.COMPLETION, length=dwords, payload=payload,
               tag=request.tlp.tag, status=0, byte_count=length, lower_address=address & 0x7F)
    assert not requests.complete(part)
    assert not request.done and request.data == b""
    fits = Tlp(**{**vars(part), "length": dwords - 1, "payload": payload[:-4]})
    assert requests.complete(fits) and request.done
    assert request.result() == payload[address & 3:][:length]


@pytest.mark.parametrize("status, error", [(CompletionStatus.UR, Unsupported),
                                           (CompletionStatus.CA, Aborted)])
def test_a_status_is_an_exception(status, error):
    requests, request = requested(64)
    requests.complete(complete(request.tlp, status, 0x100))
    with pytest.raises(error, match="MRd32 of 64 bytes at 0x1000 ended in"):
        request.result()


def test_retry_is_for_configuration_only_and_poisoned_data_is_an_abort():
    requests = Requests()
    request = requests.add(config_request(0x100, 0, None), 1.0)
    requests.complete(complete(request.tlp, CompletionStatus.CRS, 0))
    with pytest.raises(Retry, match="CfgRd0 of register 0x0 of 01:00.0"):
        request.result()
    requests, request = requested(4)
    requests.complete(complete(request.tlp, CompletionStatus.CRS, 0))
    with pytest.raises(Unsupported):
        request.result()
    requests, request = requested(4)
    part = next(answers(request.tlp, bytes(4), (4,)))
    part.ep = 1
    requests.complete(part)
    with pytest.raises(Aborted, match="data came poisoned"):
        request.result()


def test_a_tag_is_not_used_again_before_its_completion_came():
    requests, late = requested(4)
    requests.expire(1.0)
    with pytest.raises(Timeout, match="no completion in time"):
        late.result()
    others = [requested(4, requests=requests)[1] for _ in range(255)]
    assert not requests.free and late.tlp.tag not in {other.tlp.tag for other in others}
    # The late completion answers nobody, and gives its tag back.
    requests.complete(next(answers(late.tlp, b"late", (4,))))
    assert requests.free and not any(other.done for other in others)
    assert requested(4, requests=requests)[1].tlp.tag == late.tlp.tag


class ReusesTags(Requests):
    """Mutant: the tag of a request that was given up is free."""

    def expire(self, now):
        super().expire(now)
        self._open = {tag: r for tag, r in self._open.items() if not r.abandoned}
        self._next = min(set(range(256)) - set(self._open))


def test_a_tag_that_is_used_again_gets_the_wrong_data():
    requests, late = requested(4, requests=ReusesTags())
    requests.expire(1.0)
    _, second = requested(4, requests=requests)
    requests.complete(next(answers(late.tlp, b"late", (4,))))
    assert second.done and second.result() == b"late"  # what the test above rules out


def test_all_requests_of_a_life_end_with_it():
    requests, request = requested(4)
    assert requests.deadline() == 1.0
    requests.fail(SlotLost("pulled"))
    with pytest.raises(SlotLost, match="pulled"):
        request.result()
    assert requests.deadline() is None and requests.free


class Windowed(Host):
    """A host whose requests are answered, the oldest first, when nothing else is left to do."""

    def __init__(self, **options):
        super().__init__(SimpleNamespace(close=lambda: None), **options)
        self.open, self.most, self.order = deque(), 0, []

    def _request(self, slot, tlp, life):
        request = SimpleNamespace(done=False, result=lambda: tlp)
        self.open.append(request)
        self.order.append(tlp)
        self.most = max(self.most, len(self.open))
        return request

    def wait_until(self, condition, said, patience):
        while not condition():
            self.open.popleft().done = True
            self.order.append("answer")


@pytest.mark.parametrize("size", [1, 3, 32])
def test_the_next_request_goes_out_when_the_oldest_is_answered(size):
    host = Windowed()
    host.in_flight = size
    assert host.transact(None, range(100), 1) == list(range(100))
    assert host.most == size
    if size == 3:
        assert host.order[:8] == [0, 1, 2, "answer", 3, "answer", 4, "answer"]


# DMA

class FakeBox:
    """Collects what is sent to slots."""

    def __init__(self):
        self.out = []

    def send(self, number, raw, sent=None):
        self.out.append(Tlp.unpack(raw))
        if sent is not None:
            sent()


class Dma:
    """A slot with buses 9 to 16, and memory."""

    def __init__(self):
        self.memory, self.box, self.counters = Memory([]), FakeBox(), Counter()
        self.interrupts = deque()
        self.slot = HostSlot(self.box, 1, range(9, 17), self.memory, self.interrupts,
                             self.counters)
        self.slot.ready()
        self.done = 0

    def come(self, tlp):
        """A TLP of the device; what is answered."""
        self.box.out.clear()

        def done():
            self.done += 1

        self.slot.came(TlpCame(1, tlp.pack(), done))
        return list(self.box.out)


def test_dma_reads_and_writes_bytes_as_they_are_enabled():
    rng = random.Random(1)
    dma = Dma()
    region, model = dma.memory.allocate(8192), bytearray(8192)
    region.data[:] = model[:] = rng.randbytes(8192)
    count = 0
    for _ in range(300):
        start, length = rng.randrange(7000), rng.choice([1, 2, 3, 4, 5, 7, 64, 200, 1000])
        data = rng.randbytes(length)
        for tlp in memory_writes(region.start + start, data, 256, requester=0x0900):
            assert dma.come(tlp) == []
            count += 1
        model[start:start + length] = data
        assert region.data == model
        start, length = rng.randrange(7000), rng.choice([1, 2, 3, 4, 5, 7, 64, 200, 1000])
        got = b""
        for tlp in memory_reads(region.start + start, length, 512, requester=0x0900):
            tlp.tag = rng.randrange(256)
            requests = Requests()
            request = requests._open[tlp.tag] = requests.add(Tlp(**vars(tlp)), 1.0)
            request.tlp.tag = tlp.tag
            for part in dma.come(tlp):
                assert 4 * part.length <= 128
                requests.complete(part)
            got += request.result()
            count += 1
        assert got == model[start:start + length]
    assert dma.done == count and not dma.counters["unclaimed"]


def test_dma_of_what_is_not_there_is_refused():
    dma = Dma()
    tlp, = memory_reads(0x5000, 4, 128, requester=0x0900)
    answer, = dma.come(tlp)
    assert answer.status == CompletionStatus.UR.value and dma.counters["unclaimed"] == 1
    tlp, = memory_writes(0x5000, b"1234", 128, requester=0x0900)
    assert dma.come(tlp) == [] and dma.counters["unclaimed"] == 2
    for kind in ("IORd", "CfgRd0", "FetchAdd32"):
        tlp = random_tlp(random.Random(1), kinds=(kind,))
        tlp.requester_id, tlp.prefixes, tlp.digest, tlp.ep = 0x0900, (), None, 0
        answer, = dma.come(tlp)
        assert answer.status == CompletionStatus.UR.value
    assert dma.done == 5


def test_a_foreign_requester_is_blocked():
    dma = Dma()
    region = dma.memory.allocate(4096)
    tlp, = memory_writes(region.start, b"1234", 128, requester=0x0800)
    dma.come(tlp)
    tlp, = memory_reads(region.start, 4, 128, requester=0x1100)
    answer, = dma.come(tlp)
    assert answer.status == CompletionStatus.UR.value
    assert dma.counters["blocked"] == 2 and not any(region.data)


def test_handlers_serve_dma_and_one_that_fails_aborts():
    dma, seen = Dma(), []

    def bad(*_):
        raise OSError("as the test wants")

    dma.memory.add_region(Region(0x1000, 4096, lambda address, n: bytes([address & 255] * n),
                                 lambda *a: seen.append(a)))
    dma.memory.add_region(Region(0x3000, 4096, bad, bad))
    dma.memory.add_region(Region(0x5000, 4096, lambda address, n: b"", bad))
    tlp, = memory_reads(0x1006, 5, 128, requester=0x0900)
    answer, = dma.come(tlp)
    assert answer.byte_count == 5 and answer.payload[2:7] == b"\x06" * 5
    tlp, = memory_writes(0x1006, b"abc", 128, requester=0x0900)
    dma.come(tlp)
    assert seen == [(0x1006, b"abc")]
    for address in (0x3000, 0x5000):
        tlp, = memory_reads(address, 4, 128, requester=0x0900)
        answer, = dma.come(tlp)
        assert answer.status == CompletionStatus.CA.value
    tlp, = memory_writes(0x3000, b"abc", 128, requester=0x0900)
    dma.come(tlp)
    assert dma.counters["failed"] == 3 and dma.done == 5


def test_a_read_of_zero_length_reads_nothing():
    dma, seen = Dma(), []
    dma.memory.add_region(Region(0x1000, 4096, lambda *a: seen.append(a), None))
    tlp, = memory_reads(0x1000, 4, 128, requester=0x0900)
    tlp.first_be = 0
    answer, = dma.come(tlp)
    assert (answer.byte_count, len(answer.payload)) == (1, 4) and not seen


def test_interrupts_go_to_the_device_whose_address_they_have():
    dma, device = Dma(), object()
    dma.slot.devices[0x0900] = device
    assert interrupt_address(0xFFFF) < INTERRUPTS[1]
    for identifier, data in ((0x0900, b"\x03\0\0\0"), (0x0908, b"\x01\0\0\0")):
        tlp, = memory_writes(interrupt_address(identifier), data, 128, requester=0x0900)
        dma.come(tlp)
    assert list(dma.interrupts) == [(device, 3)] and dma.counters["unclaimed"] == 1


def test_completions_that_nobody_waits_for_are_counted():
    dma = Dma()
    tlp, = memory_reads(0x1000, 4, 128)
    dma.come(next(answers(tlp, bytes(4), (4,))))
    assert dma.counters == {"unexpected": 1} and dma.done == 1


def test_malformed_tlps_and_messages_only_count():
    dma = Dma()
    tlp, = memory_writes(0x1000, bytes(8), 128, requester=0x0900)
    tlp.last_be = 0
    dma.come(tlp)
    message = Tlp(Fmt.HEADER_4, Type.MESSAGE_TO_ROOT, message_code=0x18, requester_id=0x0900)
    dma.come(message)
    assert dma.counters == {"malformed": 1, "message": 1} and dma.done == 2


def test_a_device_may_send_anything():
    rng = random.Random(5)
    dma = Dma()
    dma.memory.allocate(4096)
    dma.slot.devices[0x0900] = object()
    for _ in range(3000):
        raw = wire_random.random_tlp(rng)
        assert class_of(raw) in range(3) and units_of(raw) >= 0
        dma.slot.came(TlpCame(1, raw, lambda: None))
        tlp = random_tlp(rng)
        tlp.requester_id = rng.choice([0x0900, 0x0A08, rng.getrandbits(16)])
        dma.come(tlp)
    assert dma.done == 3000 and dma.counters["malformed"] and dma.counters["blocked"]


# Memory

def test_regions_do_not_overlap_and_are_found():
    memory = Memory([(0x8000, 0x9000)])
    memory.add(0x1000, bytearray(0x1000))
    for start, size in ((0xFFF, 2), (0x1FFF, 1), (0x7FFF, 2), (0x8800, 4), (0, 0)):
        with pytest.raises(ValueError):
            memory.add(start, bytearray(size))
    with pytest.raises(ValueError, match="one that can be written"):
        memory.add(0x4000, b"read only")
    assert memory.find(0x1000, 0x1000).start == 0x1000
    assert memory.find(0x1FFF, 2) is None and memory.find(0xFFF, 1) is None
    memory.remove(memory.find(0x1000, 1))
    assert memory.find(0x1000, 1) is None


def test_what_is_allocated_is_where_nothing_else_is():
    memory = Memory([])
    start = Memory.POOL[0]
    memory.add(start + 0x1000, bytearray(0x1000))
    regions = [memory.allocate(0x1000) for _ in range(2)] + [memory.allocate(0x2000)]
    assert [region.start - start for region in regions] == [0, 0x2000, 0x3000]
    memory.remove(regions[0])
    assert memory.allocate(0x800).start == start


def test_space_is_given_out_once_and_aligned():
    rng, space, taken = random.Random(1), Space(0x1000, 0x9000), {}
    for _ in range(500):
        if taken and rng.random() < 0.5:
            space.give_back(taken.pop(rng.choice(list(taken)))[0])
        size, align = rng.randint(1, 0x900), 1 << rng.randint(0, 11)
        start = space.take(size, align)
        if start is None:
            assert taken
            continue
        assert start % align == 0 and start >= 0x1000 and start + size <= 0x9000
        assert all(start + size <= a or a + n <= start for a, n in taken.values())
        taken[rng.random()] = start, size
    with pytest.raises(MemoryError):
        Memory([]).allocate(1 << 31)
