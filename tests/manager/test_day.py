"""dxpu_manager.day: a day of jobs, worked out by hand where it is short; nobody has too much."""

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager.day import POLICIES, Job, Site, read_trace, simulate, write_trace

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"


def job(n, arrives, lasts, gpus, cpus=0):
    return Job(f"job-{n}", arrives, lasts, gpus, cpus * 1000)


def waits(jobs, site, policy):
    return [wait for wait, _ in simulate(jobs, site, policy).waits]


#: Two servers of two GPUs and four CPUs, and one without a GPU.
SITE = Site(servers=3, boxes=2, gpus=2, cpus=4000, ports=2)


def test_gpus_of_a_server_without_cpus_are_idle_but_not_those_of_a_pool():
    jobs = [job(0, 0, 100, 1, 4), job(1, 0, 100, 1, 4), job(2, 10, 50, 2, 1)]
    fixed = simulate(jobs, SITE, "fixed servers")
    assert fixed.waits == [(0, 1), (0, 1), (90, 2)]
    assert fixed.steps == [(0, 2, 0), (10, 2, 1), (100, 2, 0), (150, 0, 0)]
    assert fixed.share() == (2 * 100 + 2 * 50) / 150 / 4
    assert fixed.idle_while_waiting() == 0.5 * 90 / 150
    assert fixed.share(until=10) == 0.5
    assert (fixed.mean_wait(), fixed.mean_wait(by_gpus=True)) == (30, 45)
    assert (fixed.wait(0.5), fixed.wait(0.95)) == (0, 90)
    assert waits(jobs, SITE, "pool") == [0, 0, 0]


def test_short_jobs_jump():
    jobs = [job(0, 0, 100, 3, 1), job(1, 1, 100, 2, 1), job(2, 2, 50, 1, 1), job(3, 3, 200, 1, 1)]
    site = Site(servers=2, boxes=1, gpus=4, cpus=8000, ports=4)
    assert waits(jobs, site, "pool") == [0, 99, 98, 97]
    # The third ends before the first does. The fourth gets its GPU: it would not end by then, but
    # the second one needs two of the four only.
    for policy in ("pool, backfill", "fixed servers, backfill"):
        assert simulate(jobs, site, policy).waits == [(0, 3), (0, 1), (49, 1), (99, 2)]
    # With three GPUs for the second one, the fourth waits behind it.
    jobs[1] = job(1, 1, 100, 4, 1)
    assert waits(jobs, site, "pool, backfill") == [0, 0, 99, 197]


def test_what_fits_never_is_refused():
    jobs = [job(0, 0, 10, 3, 1), job(1, 0, 10, 1, 5), job(2, 0, 10, 2, 4)]
    for policy in POLICIES:
        outcome = simulate(jobs, SITE, policy)
        assert (outcome.refused, len(outcome.waits)) == (jobs[:2], 1)


JOBS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 3),
                          st.integers(0, 5)), max_size=15)


@settings(deadline=None, max_examples=150)
@given(JOBS, st.sampled_from(list(POLICIES)))
def test_nobody_has_too_much_and_nobody_is_forgotten(jobs, policy):
    jobs = sorted((job(n, *rest) for n, rest in enumerate(jobs)), key=lambda j: j.arrives)
    outcome, told = None, []
    outcome = simulate(jobs, SITE, policy, told.append)
    assert told == list(range(1, len(jobs) + 1))
    assert len(outcome.waits) + len(outcome.refused) == len(jobs)
    assert all(wait >= 0 for wait, _ in outcome.waits)
    assert all(0 <= used <= SITE.all_gpus and waiting >= 0 for _, used, waiting in outcome.steps)
    if jobs:
        assert outcome.steps[-1][1:] == (0, 0)
        ran = [j for j in jobs if j not in outcome.refused]
        assert sum(j.gpus * j.lasts for j in ran) == pytest.approx(
            outcome.share() * (outcome.ends - outcome.steps[0][0]) * SITE.all_gpus)


def test_a_trace():
    """Jobs without a GPU are none; a share of a GPU is a whole one; in order of arrival."""
    jobs = read_trace([*HEAD.splitlines(), "b,4000,100,1,500,,20,30", "c,1000,1,0,0,,0,9",
                       "a,8000,100,2,1000,V100,5,7.5"])
    assert jobs == [Job("a", 5, 2.5, 2, 8000), Job("b", 20, 10, 1, 4000)]
    assert read_trace(write_trace(jobs).splitlines()) == jobs


@pytest.mark.parametrize("text, says", [
    ("name,num_gpu\n", "line 1: no column cpu_milli; it needs name, cpu_milli, num_gpu, "),
    ("", "line 1: no column name"),
    (HEAD + "a,1,1,1,1,,0,1\nb,x,1,1,1,,0,1\n", "line 3: invalid literal for int"),
    (HEAD + "a,1,1,1,1,,0\n", "line 2: "),
    (HEAD + "a,1,1,1,1,,5,4\n", "line 2: fewer than no GPUs or CPUs, or an end before the begin"),
    (HEAD + "a,1,1,-1,1,,0,4\n", "line 2: fewer than no GPUs"),
    (HEAD + "a,1,1,1,1,,0,nan\n", "line 2: fewer than no GPUs"),
])
def test_wrong_traces(text, says):
    with pytest.raises(ValueError) as raised:
        read_trace(text.splitlines())
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)
