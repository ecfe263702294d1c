"""The simulation: where it has to agree with the closed form, and where it brackets it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu_performance.errors import ModelError
from dxpu_performance.program import (
    Action,
    Do,
    Program,
    Step,
    of_durations,
    of_step,
    of_timeline,
    overlapped,
)
from dxpu_performance.simulation import NATIVE, Link, Mode, simulate
from dxpu_performance.workload import (
    CallKind,
    Calls,
    Copies,
    Direction,
    Durations,
    Operations,
    Timeline,
)


def kernels(*durations_us, stream=0):
    return Program((tuple(Action(Do.RUN, stream, 0.0, each) for each in durations_us),), 1)


def kept(program, link, mode):
    return simulate(program, NATIVE, mode).time_us / simulate(program, link, mode).time_us


def test_two_kernels_by_hand():
    """A delay of 4: the doorbell arrives at 2. Serial: 2 + (4 + 10) + (4 + 1) + (4 + 10) = 35.
    Ahead: the first begins at 6, the second at 16, the third is fetched at 16 + 4 = 20."""
    program = kernels(10, 1, 10)
    assert simulate(program, NATIVE).time_us == 21
    assert simulate(program, Link(4)).time_us == 35
    assert simulate(program, Link(4), Mode.PREFETCH).time_us == 30
    assert simulate(program, Link(4, round_trips=0)).time_us == 23


def test_a_wait_costs_a_posted_write_each_way():
    """Natively 10 + 5. A delay of 4: 2 + 4 + 10 until the end, 2 until told; then 2 + 4 + 5."""
    program = Program(((Action(Do.RUN, 0, 0, 10), Action(Do.WAIT, -1, 0, 0),
                        Action(Do.RUN, 0, 0, 5)),), 1)
    assert simulate(program, NATIVE).time_us == 15
    assert simulate(program, Link(4)).time_us == 29
    assert simulate(program, Link(4), Mode.PREFETCH).time_us == 29


def test_operations_of_a_graph_are_fetched_with_the_first_one():
    """A delay of 4: 2 + 4 + 5, then 5 and 5 without a fetch."""
    program = Program(((Action(Do.RUN, 0, 0, 5), Action(Do.RUN, 0, 0, 5, fetched=False),
                        Action(Do.RUN, 0, 0, 5, fetched=False)),), 1)
    assert simulate(program, Link(4)).time_us == 21


def test_a_wait_for_a_stream_leaves_another_one_busy():
    """Stream 0 is empty after 10, stream 1 after 50: the next kernel of stream 0 ends at 15."""
    program = Program(((Action(Do.RUN, 0, 0, 10), Action(Do.RUN, 1, 0, 50),
                        Action(Do.WAIT, 0, 0, 0), Action(Do.RUN, 0, 0, 45)),), 2)
    assert simulate(program, NATIVE).time_us == 55
    every = Program((tuple(action._replace(stream=-1) if action.do is Do.WAIT else action
                           for action in program.threads[0]),), 2)
    assert simulate(every, NATIVE).time_us == 95


def test_a_thread_waits_for_what_another_one_called():
    first = (Action(Do.RUN, 0, 3, 10), Action(Do.WAIT, 0, 0, 0), Action(Do.GO_ON, -1, 1, 0))
    second = (Action(Do.RUN, 1, 2, 10, after=2),)
    assert simulate(Program((first, second), 2), NATIVE).time_us == 3 + 10 + 1 + 2 + 10


@given(st.integers(0, 1 << 32), st.floats(0.1, 50), st.floats(0.1, 2))
@settings(max_examples=20, deadline=None)
def test_serial_equals_the_closed_form_and_ahead_is_above(seed, delay, spread):
    durations = np.random.default_rng(seed).lognormal(3, spread, 600)
    program = kernels(*durations)
    closed = 1 / (1 + delay / np.mean(durations))
    serial = kept(program, Link(delay), Mode.SERIAL)
    assert serial == pytest.approx(closed, abs=0.002)
    assert serial <= kept(program, Link(delay), Mode.PREFETCH) + 1e-9 <= 1 + 2e-9


@given(st.floats(0, 50), st.floats(0, 50), st.sampled_from(list(Mode)), st.integers(1, 4),
       st.integers(0, 5), st.integers(0, 3), st.floats(0, 30))
@settings(max_examples=25, deadline=None)
def test_a_longer_delay_is_never_faster(one, other, mode, streams, waits, copies, launch):
    program = of_step(Step(20, 60, streams, waits, copies, 1 << 20, 1, launch),
                      to_gpu_gb_s=11.2, to_host_gb_s=12.5)
    near, far = sorted((one, other))
    assert (simulate(program, Link(near), mode).time_us
            <= simulate(program, Link(far), mode).time_us + 1e-6)


def test_slower_copies_and_copies_that_are_hidden():
    """A copy of 11.2 MB takes 1 ms natively, 4 ms at a quarter of the bandwidth; a stream of its
    own hides it behind 10 ms of kernels."""
    program = of_step(Step(1000, 10, copies=1, copy_bytes=11_200_000), to_gpu_gb_s=11.2,
                      to_host_gb_s=12.5)
    assert simulate(program, NATIVE).time_us == pytest.approx(11_000)
    assert simulate(program, Link(0, 4)).time_us == pytest.approx(14_000)
    assert simulate(overlapped(program), Link(0, 4)).time_us == pytest.approx(10_000)


def test_quantiles_of_a_histogram_keep_its_mean():
    durations = Durations.of([1000, 5000, 400_000], [6000, 3000, 1000])
    program = of_durations(durations, 500)
    found = [action.busy_us for action in program.threads[0]]
    assert len(found) == 500 and np.mean(found) == pytest.approx(durations.mean_ns / 1000)
    assert np.quantile(found, 0.5) == pytest.approx(1)
    assert of_durations(Durations.of([1000, 3000]), 500).kernels == 2


def trace():
    """One thread: a copy that blocks, two kernels, a wait; then another thread takes over."""
    def ns(*tenths_of_us):
        return [100 * each for each in tenths_of_us]

    calls = Calls.of(start=ns(0, 1000, 1020, 1100, 1700, 3000),
                     duration=ns(900, 10, 10, 500, 10, 10), device=[-1, -1, -1, 0, -1, -1],
                     stream=[-1, -1, -1, 7, -1, -1],
                     thread=[1, 1, 1, 1, 1, 2], correlation=[1, 2, 3, -1, -1, 4],
                     kind=[CallKind.COPY, CallKind.KERNEL, CallKind.KERNEL, CallKind.SYNCHRONISE,
                           CallKind.OTHER, CallKind.KERNEL])
    kernels = Operations.of(start=ns(1020, 1300, 3020), duration=ns(200, 280, 100),
                            device=[0, 0, 0], stream=[7, 7, 9], correlation=[2, 3, 4])
    copies = Copies.of(start=ns(100), duration=ns(700), device=[0], stream=[7], correlation=[1],
                       direction=[Direction.TO_DEVICE], bytes=[7000])
    return Timeline.of(kernels, copies, calls=calls)


def test_a_trace_becomes_calls_with_what_they_launch():
    program = of_timeline(trace())
    first, second = program.threads
    assert [action.do for action in first] == [
        Do.TO_GPU, Do.WAIT, Do.RUN, Do.RUN, Do.WAIT, Do.GO_ON]
    assert [round(action.busy_us, 3) for action in first] == [70, 0, 20, 28, 0, 0]
    assert first[4].stream == first[2].stream, "the wait is for a stream"
    # The copy blocked, so it takes no time of the processor; the kernel's call came 10 us after.
    assert first[0].gap_us == 0 and first[2].gap_us == pytest.approx(10 + 1)
    # The second thread slept while the first one called, 129 us before.
    assert second[0].after == 5 and second[0].gap_us == pytest.approx(129 + 1)
    assert (program.streams, program.native_us) == (2, pytest.approx(312))


def test_a_trace_replayed_natively_takes_what_it_took():
    program = of_timeline(trace())
    assert simulate(program, NATIVE).time_us == pytest.approx(program.native_us, rel=0.12)


@pytest.mark.parametrize("values, text", [
    (dict(kernel_us=0), "the duration of a kernel must be above 0, not 0"),
    (dict(kernel_us=1, launches=0), "launches must be a whole number from 1 to 1000000, not 0"),
    (dict(kernel_us=1, launches=2, streams=3), "streams must be a whole number from 1 to 2, not 3"),
    (dict(kernel_us=1, copies=1), "copy_bytes must be a whole number from 1 to 1099511627776, "
     "not 0"),
    (dict(kernel_us=1, launch_us=-1), "launch_us must be at least 0, not -1")])
def test_a_step_without_sense_is_one_line(values, text):
    with pytest.raises(ModelError) as error:
        Step(**values)
    assert str(error.value) == text
