"""model/dxpu_performance/data/rtl.json: the figures that come with the model are those of this
gateware."""

import pytest

from dxpu_cli.bench import paper
from dxpu_performance.fabric import Fabric
from dxpu_performance.measured import RATES, read
from dxpu_sim.system.paper import plan


def test_it_has_what_the_bench_measures():
    """All rates, with the constants of the setups; Eq. 1, or what the line allows, agrees within
    7 %, and at 100 Gb/s the model's copies with those that were measured."""
    stored = read()
    assert tuple(stored.rates) == RATES
    for name, rate in stored.rates.items():
        shape = plan.SETUPS[name].shape
        assert (rate.width_bits, rate.line_gbit_s) == (shape.width, shape.gbit_s)
        assert (rate.tags, rate.read_bytes) == (140, 128)
        assert len(rate.trips) == 1 + len(plan.SETUPS[name].slow_ns)
        assert all(abs(point.error) <= paper.LIMIT for point in rate.trips), name
    fast = stored.rates["100G"]
    assert len(fast.trips) == 5
    copies = Fabric.of_measured(stored, "100G").to_gpu_gb_s()
    assert abs(copies / fast.host_to_gpu.measured_gb_s - 1) <= paper.LIMIT


def test_native_figures_are_measured_anew(tmp_path):
    """Of the source at a PCIe link without proxies."""
    _, reads, writes = paper.run_native(tmp_path)
    for rate in read().rates.values():
        assert rate.host_to_gpu.native_gb_s == round(reads["read_bytes"] / reads["ns"], 4)
        assert rate.gpu_to_host.native_gb_s == round(writes["written_bytes"] / writes["ns"], 4)


@pytest.mark.long
@pytest.mark.parametrize("rate", RATES)
def test_latencies_are_measured_anew(rate, tmp_path):
    """Each part of the round trip."""
    found = paper.run_part(rate, "latency", tmp_path)
    fields = paper.build_rate(rate, "latency", found, [])
    assert fields["split"] == read().rates[rate].split
    assert fields["round_trip"].p50_ns == read().rates[rate].round_trip.p50_ns
