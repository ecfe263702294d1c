"""The file of measured figures: what is written is read; what is wrong is told in one line."""

import dataclasses
import json
import random

import pytest

from dxpu_performance import measured
from tests.support.testbench import seed

TIME = measured.RoundTrip(1500.5, 1600.0, 1700.0, ((1500.0, 3), (1784.0, 97)))
RATE = measured.Rate(
    clock_hz=195.3125e6, width_bits=512, line_gbit_s=100.0, tags=140, read_bytes=128,
    max_payload_bytes=128, overhead_bytes=20.7, round_trip=TIME,
    split=measured.Split(1200.0, 1900.0, 400.0), host_to_gpu=measured.Bandwidth(2.7, 11.2),
    gpu_to_host=measured.Bandwidth(11.6, 12.5), gpu_to_gpu=measured.PeerToPeer(12.8, 9.4),
    trips=(measured.TripPoint(6800.0, 2.64, 11.6, 2.7),),
    scaling=(measured.Scaling(8, 2, 8.3),), load=(measured.LoadPoint(0.9, 2000.0, 9000.0),),
    loss=(measured.LossPoint(0.01, 2000.0, 90000.0, 1.5),))
ALL = measured.Measured("dxpu bench paper", {
    "100G": RATE, "1G": dataclasses.replace(RATE, gpu_to_gpu=None, trips=())},
    (measured.Assumption("Ethernet switch", "1 us", "He et al., 4.2"),))


def changed(path, *, value=None):
    """The file with a key set, or deleted if there is no value."""
    whole = json.loads(json.dumps({"version": measured.VERSION} | dataclasses.asdict(ALL)))
    where = whole
    *before, last = path
    for key in before:
        where = where[key]
    if value is None:
        del where[last]
    else:
        where[last] = value
    return whole


def test_what_is_written_is_read(tmp_path):
    measured.write(tmp_path / "rtl.json", ALL)
    assert measured.read(tmp_path / "rtl.json") == ALL
    assert [each.name for each in tmp_path.iterdir()] == ["rtl.json"]


@pytest.mark.parametrize("path, value, text", [
    (["version"], None, "version is missing"),
    (["version"], 2, "version must be 1: write the file anew by `dxpu bench paper --out`"),
    (["command"], 5, "command must be a text, not 5"),
    (["rates", "100G", "split", "native_ns"], None, "rates.100G.split.native_ns is missing"),
    (["rates", "100G", "split", "extra"], 1.0, "rates.100G.split.extra is unknown"),
    (["rates", "100G", "round_trip", "p99_ns"], -1, "rates.100G.round_trip.p99_ns must be 0 or "
     "more, not -1"),
    (["rates", "100G", "trips", 0, "measured_gb_s"], 0, "rates.100G.trips[0].measured_gb_s must be "
     "more than 0"),
    (["rates", "1G", "tags"], 1.5, "rates.1G.tags must be a whole number, not 1.5"),
    (["rates", "1G", "loss", 0, "loss"], 1.5, "rates.1G.loss[0].loss must be at most 1, not 1.5"),
    (["rates", "1G", "clock_hz"], "fast", "rates.1G.clock_hz must be a number, not 'fast'"),
    (["rates", "1G", "clock_hz"], True, "rates.1G.clock_hz must be a number, not True"),
    (["rates", "1G", "clock_hz"], float("nan"), "rates.1G.clock_hz must be 0 or more, not nan"),
    (["rates", "1G", "load"], {}, "rates.1G.load must be a list"),
    (["rates", "1G", "round_trip", "histogram", 0], [1], "rates.1G.round_trip.histogram[0] must "
     "have 2 items"),
    (["rates", "1G"], [], "rates.1G must be an object"),
    (["rates"], {}, "rates must be of 100G, 10G, 1G, not []"),
])
def test_what_is_wrong_is_told_in_one_line(tmp_path, path, value, text):
    file = tmp_path / "rtl.json"
    file.write_text(json.dumps(changed(path, value=value)))
    with pytest.raises(measured.FileError) as error:
        measured.read(file)
    assert str(error.value) == f"{file}: {text}"


def test_a_file_that_is_none(tmp_path):
    file = tmp_path / "rtl.json"
    with pytest.raises(measured.FileError, match="No such file"):
        measured.read(file)
    for text in ("", "{", "\xff"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(measured.FileError, match=r"rtl\.json: no JSON$"):
            measured.read(file)
    file.write_text("[]")
    with pytest.raises(measured.FileError, match="version is missing"):
        measured.read(file)
    file.write_text(json.dumps(changed(["rates", "40G"], value=dataclasses.asdict(RATE))))
    with pytest.raises(measured.FileError, match=r"not \['40G'\]"):
        measured.read(file)


def test_a_file_stays_if_writing_fails(tmp_path):
    file = tmp_path / "rtl.json"
    measured.write(file, ALL)
    with pytest.raises(TypeError):
        measured.write(file, dataclasses.replace(ALL, command=object()))
    assert measured.read(file) == ALL
    with pytest.raises(OSError):
        measured.write(tmp_path / "no" / "rtl.json", ALL)


def test_shares_and_errors():
    assert RATE.host_to_gpu.share == pytest.approx(0.241, abs=5e-4)
    assert RATE.gpu_to_host.share == pytest.approx(0.928, abs=5e-4)
    assert RATE.gpu_to_gpu.share == pytest.approx(0.734, abs=1e-3)
    trip = RATE.trips[0]
    assert trip.error == pytest.approx(-0.022, abs=1e-3)
    assert dataclasses.replace(trip, limit_gb_s=2.0).predicted_gb_s == 2.0


def test_bins_have_each_time_once():
    rng = random.Random(seed())
    times = [rng.lognormvariate(7, 1) for _ in range(500)]
    found = measured.bins(times)
    assert sum(count for _, count in found) == len(times)
    assert [bound for bound, _ in found] == sorted({bound for bound, _ in found})
    assert found[0][1] and found[-1][1]
    before = 0.0
    for bound, count in found:
        assert count == sum(before < time <= bound for time in times)
        before = bound
    assert measured.bins([]) == ()
    assert measured.bins([1500.0, 1500.0]) == ((1500.0, 2),)
