"""dxpu_performance.workload and .summary: figures by hand, and no sense is refused."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from dxpu_performance.summary import CopySummary, queue_depths, summarise
from dxpu_performance.workload import (CallKind, Calls, Copies, Direction, Durations, Operations,
                                       Timeline, Workload, WorkloadError, union_ns)


def timeline():
    """Two GPUs; all times begin at 1,000 ns.

    GPU 0:  kernel 1 [1200, 1300), kernel 2 [1300, 1500), stream 7; copy 3 [1400, 1600), stream 8;
            kernels of the graph 6 [2200, 2210), [2210, 2230)
    GPU 1:  kernel 5 [1900, 2000); memset without a call [1850, 1860)
    calls:  1, 2, 3 launch at 1000, 1010, 1100; 4 waits in [1110, 1600); 5 at 1700; 6 at 2100
    """
    return Timeline.of(
        Operations.of(start=[1900, 1200, 1300, 2200, 2210], duration=[100, 100, 200, 10, 20],
                      device=[1, 0, 0, 0, 0], stream=[7, 7, 7, 7, 7],
                      correlation=[5, 1, 2, 6, 6], name=[0, 0, 1, 1, 1]),
        Copies.of(start=[1400], duration=[200], device=[0], stream=[8], correlation=[3],
                  direction=[Direction.TO_HOST], bytes=[4096]),
        Operations.of(start=[1850], duration=[10], device=[1], stream=[7]),
        Calls.of(start=[1000, 1010, 1100, 1110, 1700, 2100], duration=[5, 5, 5, 490, 5, 7],
                 correlation=[1, 2, 3, 4, 5, 6],
                 kind=[CallKind.KERNEL, CallKind.KERNEL, CallKind.COPY, CallKind.SYNCHRONISE,
                       CallKind.KERNEL, CallKind.GRAPH]),
        names=["gemm", "add"])


def test_summary_of_a_timeline():
    summary = summarise(Workload.of("made by hand", timeline()))
    assert (summary.kernels, summary.kernel_ns, summary.mean_ns, summary.median_ns) == (
        5, 430, 86, 100)
    assert (summary.short_count_share, summary.short_time_share) == (1, 1)
    times = summary.timeline
    assert times.span_ns == 1230
    assert times.busy_share == pytest.approx((330 + 100) / (2 * 1230))
    assert (times.devices, times.streams) == (2, 3)
    assert times.copies == {Direction.TO_HOST: CopySummary(1, 4096, 200)}
    assert (times.exposed_copies, times.exposed_copy_ns) == (0, 100)
    assert (times.memsets, times.launches) == (1, 5)
    assert (times.synchronisations, times.synchronisation_ns) == (1, 490)
    # Kernel 1 finds none, kernel 2 one, copy 3 both of them, the rest none.
    assert times.queue_depth == pytest.approx((0 + 1 + 2 + 0 + 0 + 0) / 6)
    assert times.empty_queue_share == pytest.approx(4 / 6)


def test_order_and_origin():
    made = timeline()
    assert made.kernels.start.tolist() == [200, 300, 900, 1200, 1210]
    assert made.kernels.correlation.tolist() == [1, 2, 5, 6, 6]
    assert made.launch_of(made.kernels).tolist() == [0, 1, 4, 5, 5]
    assert made.launch_of(made.copies).tolist() == [2]
    assert made.launch_of(made.memsets).tolist() == [-1]
    assert made.devices == (0, 1)


def test_a_part_of_a_timeline():
    whole = Workload.of("made by hand", timeline())
    first = whole.select(device=0).timeline
    assert first.kernels.correlation.tolist() == [1, 2, 6, 6]
    assert first.calls.correlation.tolist() == [1, 2, 3, 4, 6]  # and those that launch nothing
    second = whole.select(device=1).timeline
    assert second.calls.correlation.tolist() == [4, 5]
    assert (len(second.memsets), len(second.copies)) == (1, 0)
    assert second.calls.start.tolist() == [0, 590]  # the first of what stays is the origin
    window = whole.select(begin_ns=250, end_ns=1000).timeline
    assert window.kernels.correlation.tolist() == [2, 5]
    assert window.calls.correlation.tolist() == [2, 3, 5]
    assert window.calls.start[0] == 0  # the launch of what starts in the window
    assert whole.select() is whole


@pytest.mark.parametrize("choice, message", [
    (dict(device=2), "no GPU 2 is in the trace; there are: 0, 1"),
    (dict(begin_ns=5000), "no kernel is in the chosen part; the trace lasts 0.001 ms"),
    (dict(end_ns=100), "no kernel is in the chosen part; the trace lasts 0.001 ms"),
])
def test_a_part_that_is_not_there(choice, message):
    with pytest.raises(WorkloadError, match=f"^{message}$"):
        Workload.of("", timeline()).select(**choice)


def test_durations_have_no_part():
    with pytest.raises(WorkloadError, match="durations alone have no GPU"):
        Workload("", Durations.of([1])).select(device=0)


def test_durations():
    made = Durations.of([4000, 10_000, 4000, 90_000], [1, 2, 3, 4])
    assert (made.ns.tolist(), made.count.tolist()) == ([4000, 10_000, 90_000], [4, 2, 4])
    assert (made.kernels, made.total_ns, made.mean_ns) == (10, 396_000, 39_600)
    assert made.share_to(10_000) == (0.6, pytest.approx(36 / 396))
    assert [made.quantile_ns(share) for share in (0, 0.4, 0.41, 0.6, 1)] == [
        4000, 4000, 10_000, 10_000, 90_000]
    assert summarise(Workload("", made)).timeline is None


@pytest.mark.parametrize("given, message", [
    (([], None), "no kernel at all"),
    (([1, 2], [0, 0]), "no kernel at all"),
    (([1, 2], [1]), "2 durations, but 1 counts"),
    (([1, -2], None), "a duration or a count is negative"),
    (([1, 2], [1, -1]), "a duration or a count is negative"),
    (([1, float("nan")], None), "a duration or a count is not finite"),
    (([1], [float("inf")]), "a duration or a count is not finite"),
    (([1e300], None), "a duration is too large"),
    ((["long"], None), "a duration or a count is not a number"),
])
def test_durations_without_sense(given, message):
    with pytest.raises(WorkloadError, match=f"^{message}$"):
        Durations.of(*given)


@pytest.mark.parametrize("columns, message", [
    (dict(start=[0, 1], duration=[1]), "Operations: 2 starts, but 1 of duration"),
    (dict(start=[0], duration=[-1]), "Operations: a duration is negative: -1"),
    (dict(start=[1 << 62], duration=[1]), "Operations: a value of start is too large"),
    (dict(start=[1 << 70], duration=[1]), "Operations: a value of start is not a number"),
    (dict(start=[1e20], duration=[1]), "Operations: a value of start is too large"),
    (dict(start=[float("nan")], duration=[1]), "Operations: a value of start is not finite"),
    (dict(start=["now"], duration=[1]), "Operations: a value of start is not a number"),
    (dict(start=[None], duration=[1]), "Operations: a value of start is not a number"),
])
def test_columns_without_sense(columns, message):
    with pytest.raises(WorkloadError, match=f"^{message}"):
        Operations.of(**columns)


def test_a_column_of_no_table():
    with pytest.raises(TypeError, match="Operations has no column 'bytes'"):
        Operations.of(start=[0], duration=[1], bytes=[1])


def test_a_timeline_needs_kernels_and_names():
    with pytest.raises(WorkloadError, match="no kernel at all"):
        Workload.of("", Timeline.of(Operations.none()))
    with pytest.raises(WorkloadError, match="a kernel has the number of a name that is not there"):
        Timeline.of(Operations.of(start=[0], duration=[1], name=[0]))


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12)


@given(intervals)
def test_union(pairs):
    pairs = sorted(pairs)
    start = np.array([begin for begin, _ in pairs], np.int64)
    covered = {at for begin, length in pairs for at in range(begin, begin + length)}
    assert union_ns(start, start + np.array([n for _, n in pairs], np.int64)) == len(covered)


@given(intervals, intervals)
def test_exposed_copies(kernels, copies):
    kernels, copies = sorted(kernels) or [(0, 0)], sorted(copies)
    running = Operations.of(start=[0, *(s for s, _ in kernels)],
                            duration=[0, *(d for _, d in kernels)], device=[0] * (len(kernels) + 1))
    copying = Copies.of(start=[s for s, _ in copies], duration=[d for _, d in copies],
                        device=[0] * len(copies), direction=[Direction.TO_DEVICE] * len(copies))
    times = summarise(Workload.of("", Timeline.of(running, copying))).timeline

    def covered(pairs):
        return {at for begin, length in pairs for at in range(begin, begin + length)}

    assert times.exposed_copy_ns == len(covered(copies) - covered(kernels))
    assert times.exposed_copies == sum(
        not any(s < begin + length and s + d > begin for begin, length in kernels)
        for s, d in copies)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(-9, 9), st.integers(0, 9)), min_size=1,
                max_size=12))
@example([(5, 0, 0), (3, 1, 4)])
def test_depths_of_queues(rows):
    """Against the definition, operation by operation."""
    made = Timeline.of(
        Operations.of(start=[call + wait for call, wait, _ in rows],
                      duration=[length for _, _, length in rows], device=[0] * len(rows),
                      correlation=list(range(len(rows)))),
        calls=Calls.of(start=[call for call, _, _ in rows], duration=[0] * len(rows),
                       correlation=list(range(len(rows))), kind=[CallKind.KERNEL] * len(rows)))
    depths = [sum(other < call < other + wait + length for other, wait, length in rows)
              for call, _, _ in rows]
    assert sorted(queue_depths(made)) == sorted(depths)
