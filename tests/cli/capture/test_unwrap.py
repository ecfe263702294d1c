"""``dxpu_cli.capture.unwrap``: times, numbers and what is missing, of frames by the page."""

import struct

import pytest

from dxpu_cli.capture.unwrap import BAD, RESET, Unwrapper

NOW = 1_700_000_000 * 10**9


def mirrored(data=b"observed" * 8, number=0, time=0, *, lost=0, flags=0, path=0, period=8000,
             length=None):
    """A frame by the table of docs/reference/mirror.md."""
    return bytes.fromhex("ffffffffffff 024458ffffff 88b6") + struct.pack(
        ">BBHHIH", 0x10 | flags, path, len(data) if length is None else length, period,
        number % 2**32, lost % 2**16) + (time % 2**48).to_bytes(6, "big") + data


@pytest.fixture
def take():
    return Unwrapper().take


def test_a_frame(take):
    """The first one has the time of this machine, the others count from there."""
    first = take(mirrored(time=1000), NOW)
    assert first == (0, False, NOW, b"observed" * 8, 64, False, 0, "")
    second = take(mirrored(number=1, time=1125, flags=2, length=4000), NOW + 10**6)
    assert second == (0, False, NOW + 1000, b"observed" * 8, 4000, True, 0, BAD)
    assert take(b"\xff" * 12 + b"\x88\xb6" + b"\x20" * 50, NOW) is None


def test_padding_is_no_part_of_it(take):
    assert take(mirrored(b"abcd") + bytes(24), NOW).data == b"abcd"


def test_times_and_numbers_wrap(take):
    """A day of frames, an hour apart, across the wraps of all fields; odd picoseconds add up."""
    start = 2**48 - 12 * 3600 * 10**9 // 8
    for hour in range(24):
        time = start + hour * 3600 * 105_000_000
        frame = take(mirrored(number=2**32 - 5 + hour, time=time, lost=2**16 - 3, period=9524), NOW)
        exact = hour * 3600 * 105_000_000 * 9524 // 1000
        assert abs(frame.time_ns - NOW - exact) <= 1 and not frame.comment


def test_directions_are_counted_by_themselves_and_share_a_clock(take):
    take(mirrored(number=7, time=100), NOW)
    other = take(mirrored(number=3, time=50, flags=1), NOW)  # older, but waited for its turn
    assert (other.received, other.time_ns, other.comment) == (True, NOW - 400, "")
    assert take(mirrored(number=8, time=101), NOW).comment == ""
    assert take(mirrored(number=0, time=0, path=3), NOW + 5).time_ns == NOW + 5


@pytest.mark.parametrize("number, lost, missing, comment", [
    (6, 0, 0, ""),
    (9, 3, 3, "frames of this direction missing before this one: 3 (3 had no room in the mirror)"),
    (8, 0, 2, "frames of this direction missing before this one: 2 (2 were lost behind it)"),
    (2006, 1234, 2000, "frames of this direction missing before this one: 2,000 (1,234 had no room "
     "in the mirror, 766 were lost behind it)"),
    (4, 0, 0, "came late"),
])
@pytest.mark.parametrize("base", [0, 2**32 - 7])
def test_what_is_missing(take, number, lost, missing, comment, base):
    take(mirrored(number=base + 5, lost=65_000), NOW)
    frame = take(mirrored(number=base + number, time=5, lost=65_000 + lost), NOW)
    assert (frame.missing, frame.comment) == (missing, comment)


def test_a_late_frame_does_not_make_others_missing(take):
    for number, comment in ((0, ""), (3, "2 (2 were lost behind it)"), (1, "late"), (4, "")):
        said = take(mirrored(number=number, time=number), NOW).comment
        assert said.endswith(comment) and bool(said) == bool(comment)


@pytest.mark.parametrize("after", [
    {"time": 5}, {"time": 2**33, "number": 3}, {"time": 2**33, "number": 5000, "period": 10_000}])
def test_a_reset_is_told(take, after):
    """By its time, its numbers or its clock; times are those of this machine again, and nothing is
    missing, in no direction."""
    take(mirrored(number=5000, time=2**32), NOW)
    take(mirrored(number=4, time=2**32, flags=1), NOW)
    frame = take(mirrored(**after), NOW + 10**12)
    assert (frame.time_ns, frame.missing, frame.comment) == (NOW + 10**12, 0, RESET)
    period = after.get("period", 8000)
    other = take(mirrored(number=9, time=after["time"], flags=1, period=period), NOW)
    assert (other.time_ns, other.comment) == (NOW + 10**12, "")
