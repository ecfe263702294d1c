"""The checkers detect each violation they are there for, and nothing in clean traffic."""

import pytest
from dxpu_sim.pcie.checkers import CPL, NP, P, CheckFailed, Header, TlpChecker, type0
from tests.support.raw_tlps import completion, config, memory


def memory_write(address, data):
    return memory(address, data=data)


@pytest.fixture
def checker():
    return TlpChecker(["host", "gpu"])


def expect(checker, text, count=1):
    assert len(checker.violations) == count, checker.violations
    assert text in checker.violations[-1]


def through(checker, raw, source="gpu"):
    checker.entered(source, raw)
    checker.left("host" if source == "gpu" else "gpu", raw)


def test_header_fields():
    read = Header.parse(memory(0x1_2345_6780, 32, tag=0x3a5, requester=0x3b00))
    assert (read.cls, read.length, read.tag, read.requester_id) == (NP, 32, 0x3a5, 0x3b00)
    assert (read.address, read.read_bytes) == (0x1_2345_6780, (128, 0x1_2345_6780))
    assert Header.parse(memory_write(0x1000, bytes(8))).cls == P
    assert Header.parse(b"\x34" + bytes(15)).cls == P  # message
    assert Header.parse(b"\x42" + bytes(15)).cls == NP  # I/O write
    cpl = Header.parse(completion(bytes(64), count=128, lower=0x40, tag=7, requester=0x0208))
    assert (cpl.cls, cpl.tag, cpl.requester_id, cpl.other_id) == (CPL, 7, 0x0208, 0x0300)
    assert (cpl.byte_count, cpl.lower_address, cpl.status) == (128, 0x40, 0)
    assert Header.parse(completion(count=0)).byte_count == 4096
    assert Header.parse(b"\x81\0\0\0" + memory(0x40, 1)).address == 0x40  # with a prefix
    with pytest.raises(CheckFailed, match="TLP of 8 bytes"):
        Header.parse(bytes(8))


@pytest.mark.parametrize("first, last, length, expected", [
    (0b1111, 0b1111, 2, (8, 0)), (0b1110, 0b0001, 2, (4, 1)), (0b1000, 0b0111, 3, (8, 3)),
    (0b0110, 0, 1, (2, 1)), (0, 0, 1, (1, 0)), (0b1001, 0, 1, (4, 0)),
    (0b1111, 0b1111, 0, (4096, 0))])
def test_bytes_of_a_read(first, last, length, expected):
    """PCIe Base 5.0, table 2-38."""
    read = Header.parse(memory(0x1000, length, first=first, last=last))
    assert read.read_bytes == (expected[0], 0x1000 + expected[1])


def test_clean_traffic(checker):
    read, write = memory(0x1000, 32), memory_write(0x2000, bytes(8))
    checker.entered("gpu", read, 10, 11)
    checker.entered("gpu", write, 12, 13)
    checker.left("host", write, 20, 21)  # posted may pass non-posted
    checker.left("host", read, 22, 23)
    for part in (completion(bytes(64), count=128), completion(bytes(64), count=64, lower=0x40)):
        through(checker, part, "host")
    checker.finish()
    assert [c.header.cls for c in checker.crossings] == [P, NP, CPL, CPL]
    first = checker.crossings[0]
    assert (first.first_in, first.last_in, first.first_out, first.last_out) == (12, 13, 20, 21)


def test_lost(checker):
    checker.entered("gpu", memory_write(0x2000, bytes(8)))
    with pytest.raises(CheckFailed, match="gpu to host: lost: posted"):
        checker.finish()


def test_doubled(checker):
    write = memory_write(0x2000, bytes(8))
    through(checker, write)
    checker.left("host", write)
    expect(checker, "left twice")


def test_changed(checker):
    checker.entered("gpu", memory_write(0x2000, bytes(8)))
    checker.left("host", memory_write(0x2000, b"\1" + bytes(7)))
    expect(checker, "changed")


def test_invented(checker):
    checker.left("host", memory_write(0x2000, bytes(8)))
    expect(checker, "never entered")


def test_invented_by_right():
    checker = TlpChecker(["host", "gpu"], originates=lambda port, h: port == "host")
    checker.left("host", memory_write(0x2000, bytes(8)))
    checker.finish()
    assert checker.originated["host", P] == 1
    checker.left("gpu", memory_write(0x2000, bytes(8)))
    expect(checker, "never entered")


def test_wrong_port():
    checker = TlpChecker(["host", 1, 2], lambda source, h: [(1, h.raw)])
    checker.entered("host", memory_write(0x2000, bytes(8)))
    checker.left(2, memory_write(0x2000, bytes(8)))
    expect(checker, "entered at host for 1")


def test_wrong_class_stream(checker):
    write = memory_write(0x2000, bytes(8))
    checker.entered("gpu", write)
    checker.left("host", write, cls=NP)
    expect(checker, "stream of class non-posted")


@pytest.mark.parametrize("second", [
    memory_write(0x3000, bytes(4)), memory(0x3000, 1), completion(bytes(4), tag=9)])
def test_nothing_passes_posted(checker, second):
    checker.entered("host", memory(0x1000, 1, tag=9))
    checker.entered("gpu", memory_write(0x2000, bytes(8)))
    checker.entered("gpu", second)
    checker.left("host", second)
    expect(checker, "passed posted")


def test_completions_of_one_request_keep_order(checker):
    checker.entered("gpu", memory(0x1000, 32))
    parts = completion(bytes(64), count=128), completion(bytes(64), count=64, lower=0x40)
    for part in parts:
        checker.entered("host", part)
    checker.left("gpu", parts[1])
    assert "changed places" in checker.violations[0]


def test_completions_of_two_requests_may_pass(checker):
    reads = [memory(0x1000, 1, tag=n) for n in (1, 2)]
    for read in reads:
        through(checker, read)
    answers = [completion(bytes(4), tag=n) for n in (1, 2)]
    for answer in answers:
        checker.entered("host", answer)
    for answer in reversed(answers):
        checker.left("gpu", answer)
    checker.finish()


def test_unexpected_completion(checker):
    through(checker, completion(bytes(4)), "host")
    expect(checker, "unexpected completion")


def test_second_completion(checker):
    through(checker, memory(0x1000, 1))
    through(checker, completion(bytes(4)), "host")
    through(checker, completion(b"1234"), "host")
    expect(checker, "unexpected completion")


def test_completion_for_another_requester(checker):
    through(checker, memory(0x1000, 1))
    through(checker, completion(bytes(4), requester=0x0200), "host")
    expect(checker, "unexpected completion")


@pytest.mark.parametrize("wrong", [
    completion(bytes(64), count=64, lower=0x40), completion(bytes(64), count=128, lower=0x40),
    completion(bytes(64), count=124)])
def test_wrong_bytes(checker, wrong):
    through(checker, memory(0x1000, 32))
    through(checker, wrong, "host")
    expect(checker, "are due")


def test_success_without_data(checker):
    through(checker, memory(0x1000, 1))
    through(checker, completion(count=4), "host")
    expect(checker, "without data")


def test_unanswered(checker):
    through(checker, memory(0x1000, 1))
    with pytest.raises(CheckFailed, match="gpu: no completion: non-posted"):
        checker.finish()


def test_partly_answered(checker):
    through(checker, memory(0x1000, 32))
    through(checker, completion(bytes(64), count=128), "host")
    with pytest.raises(CheckFailed, match="no completion"):
        checker.finish()


def test_nothing_of_before_a_reset_arrives_at_the_port_that_was_reset(checker):
    old, other = memory(0x1000, 1), memory_write(0x2000, bytes(4))
    late = memory(0x3000, 1, tag=3)
    checker.entered("gpu", old)
    checker.entered("gpu", other)
    checker.fault("host")
    checker.entered("gpu", late)
    checker.left("host", other)  # into a link that is down, or is just going
    checker.reborn("host")
    assert not checker.violations
    for count, raw in enumerate((old, late), 1):
        checker.left("host", raw)
        expect(checker, "from an earlier life", count)
    # What enters now may still get lost, but may arrive; then all is as ever.
    checker.entered("gpu", memory(0x4000, 1, tag=4))
    checker.left("host", memory(0x4000, 1, tag=4))
    checker.mended("host")
    checker.entered("gpu", memory(0x5000, 1, tag=5))
    assert len(checker.violations) == 2
    assert any("0x5000" in problem for problem in checker.outstanding())
    assert not any("0x1000" in problem and "lost" in problem for problem in checker.outstanding())


@pytest.mark.parametrize("source, destination", [("gpu", "host"), ("host", "gpu")])
@pytest.mark.parametrize("faulty", ["gpu", "host"])
def test_nothing_of_before_a_fault_arrives_behind_what_came_after_it(
        checker, source, destination, faulty):
    """Completions, which nothing keeps from passing one another: the lives alone forbid it."""
    before, also, after, last = (completion(bytes(4), tag=tag) for tag in range(4))
    for tag in range(4):
        checker.entered(destination, memory(0x1000, 1, tag=tag))
        checker.left(source, memory(0x1000, 1, tag=tag))
    checker.fault(faulty)
    checker.entered(source, before)
    checker.entered(source, also)
    checker.mended(faulty)
    checker.entered(source, after)
    # As long as nothing of the new life has arrived, what is older may.
    checker.left(destination, before)
    checker.left(destination, after)
    assert not checker.violations
    checker.left(destination, also)
    expect(checker, "from an earlier life")
    # A second fault begins a third life; lives of one port are none of the other's lanes.
    checker.fault(faulty)
    checker.mended(faulty)
    checker.entered(source, last)
    checker.left(destination, last)
    assert len(checker.violations) == 1


def test_nobody_waits_for_completions_after_a_reset(checker):
    checker.entered("gpu", memory(0x1000, 1))
    checker.left("host", memory(0x1000, 1))
    checker.fault("gpu")
    checker.reborn("gpu")
    checker.entered("host", completion(bytes(4)))
    checker.left("gpu", completion(bytes(4)))
    expect(checker, "unexpected completion")


def test_a_port_that_is_reset_without_a_fault_loses_nothing(checker):
    checker.entered("gpu", memory(0x1000, 1))
    checker.reborn("host")
    checker.reborn("gpu")
    assert len(checker.outstanding()) == 2


def test_error_ends_a_request(checker):
    through(checker, memory(0x1000, 32))
    through(checker, completion(count=128, status=1), "host")
    checker.finish()


def test_tag_used_again(checker):
    through(checker, memory(0x1000, 1))
    checker.entered("gpu", memory(0x2000, 1))
    expect(checker, "used again")


def test_completion_of_the_design_is_exact():
    checker = TlpChecker(["host", "gpu"], lambda *_: [], originates=lambda *_: True)
    checker.entered("host", memory(0x1005 & ~3, 2, first=0b1110))
    checker.left("host", completion(count=7, lower=5, status=1))
    assert not checker.violations
    checker.entered("host", memory(0x1004, 2, first=0b1110))
    checker.left("host", completion(count=8, lower=5, status=1))
    expect(checker, "should be 7 and 0x5")
    checker.entered("host", config(1, 0x0300, 0, requester=0x0100))
    checker.left("host", completion(count=0, status=1))
    expect(checker, "should be 4", 2)


def test_type_1_becomes_type_0():
    raw = config(1, 0x0300, 0x10)
    assert type0(raw) == config(0, 0x0300, 0x10)
    checker = TlpChecker(["host", 1], lambda source, h: [(1, type0(h.raw))])
    checker.entered("host", raw)
    checker.left(1, config(0, 0x0300, 0x10))
    assert not checker.violations
    checker.entered("host", config(1, 0x0300, 0x14, tag=2))
    checker.left(1, config(1, 0x0300, 0x14, tag=2))
    assert "changed" in checker.violations[0] or "entered" in checker.violations[0]


def test_fatal():
    checker = TlpChecker(["host", "gpu"], fatal=True)
    with pytest.raises(CheckFailed, match="never entered"):
        checker.left("host", memory_write(0x2000, bytes(8)))


def test_needs_a_route():
    with pytest.raises(ValueError, match=r"route must be given for ports \('a', 'b', 'c'\)"):
        TlpChecker("abc")
