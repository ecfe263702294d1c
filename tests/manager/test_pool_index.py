"""dxpu_manager.pool: what is found by an index is what a look at all records finds."""

import asyncio

from hypothesis import given, settings, strategies as st

from dxpu_manager import Binding, Gpu, Job, Node, Pool, Role, State, Task

HOSTS, BOXES = (1, 2), (8, 9)
GPUS = st.builds(lambda box, slot, state, binding: Gpu(box, slot, state, binding=binding),
                 st.sampled_from(BOXES), st.sampled_from((1, 2, 10)), st.sampled_from(State),
                 st.one_of(st.none(), st.builds(Binding, st.sampled_from(HOSTS),
                                                st.integers(0, 30), st.just(1))))
TASKS = st.builds(lambda number: Task(number, Job.ATTACH, (), 1), st.sampled_from((9, 10, 11, 100)))
ACTS = st.lists(st.tuples(st.one_of(GPUS, TASKS), st.booleans()), max_size=30)


class _NoStore:
    """Nothing is ever written."""

    def takes(self, events):
        return len(events)

    async def write(self, events):
        await asyncio.Event().wait()


@settings(max_examples=200, deadline=None)
@given(ACTS)
def test_indices_agree_with_a_look_at_all(acts):
    async def whole():
        pool = Pool(_NoStore(), {}, 0, 0.0)
        with pool.change() as change:
            for serial in (*HOSTS, *BOXES):
                role = Role.HOST if serial in HOSTS else Role.BOX
                change.put(Node(serial, role, "0" * 12, serial, 30), "")
        for record, is_put in acts:
            with pool.change() as change:
                if is_put:
                    change.put(record, "")
                elif record.key in pool.records:
                    change.remove(pool.records[record.key], "")
            compare(pool)

    asyncio.run(whole())


def compare(pool):
    records = list(pool.records.values())
    tasks = sorted((r for r in records if isinstance(r, Task)), key=lambda task: task.number)
    gpus = sorted((r for r in records if isinstance(r, Gpu)), key=lambda gpu: (gpu.box, gpu.slot))
    assert list(pool.all(Task)) == tasks and pool.count(Task) == len(tasks)
    assert pool.last(Task) == (tasks[-1] if tasks else None)
    assert list(pool.all(Gpu)) == gpus and pool.count(Gpu) == len(gpus)
    for box in BOXES:
        assert [gpu for gpu in gpus if gpu.box == box] == pool.gpus_of(box)
        hosts = {gpu.binding.host for gpu in gpus if gpu.box == box and gpu.binding}
        assert {node.serial for node in pool.partners(pool.node(box))} == hosts
    for host in HOSTS:
        bound = [gpu for gpu in gpus if gpu.binding and gpu.binding.host == host]
        found = pool.bound_to(host)
        assert set(found) == {gpu.binding.port for gpu in bound}
        assert all(gpu in bound and gpu.binding == binding for gpu, binding in found.values())
        boxes = {gpu.box for gpu, _ in found.values()}
        assert {node.serial for node in pool.partners(pool.node(host))} == boxes
