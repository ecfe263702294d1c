"""A quicker engine for Amaranth's simulator, with the same results, cycle by cycle.

The library's engine of version 0.5 runs every process of a clock at each of its edges, looks at
each combinational one in each round, and interprets each sampled expression anew. This one

- runs a process of a clock only if something that it reads, or drives, has changed since,
- keeps a list of the combinational processes that have to run,
- compiles what is sampled more than once.
"""

import operator
import re

from amaranth.hdl import Const, Shape, Signal, Value
from amaranth.hdl._ast import Concat, Operator, ShapeCastable, Slice
from amaranth.sim import Simulator, _pyeval, _pyrtl, pysim

__all__ = ["QuickEngine", "use_quick_engine"]

_UPDATE = re.compile(r"slots\[(\d+)\]\.update\((next_\1), (.*)\)")
_SLOT = re.compile(r"slots\[(\d+)\]")
#: The code of the three kinds of functions by which the library wakes a process of a design.
_WAKERS = {getattr(_pyrtl, f"{name}_waker")(*words).__code__: name for name, *words in (
    ("comb", None), ("edge", None, None), ("memory", None))}
_TWO = {"|": operator.or_, "&": operator.and_, "^": operator.xor}


def use_quick_engine() -> None:
    """Simulators that are made afterwards have this engine; a second call has no effect."""
    emitter = _pyrtl._PythonEmitter
    append, flush = emitter.append, emitter.flush
    if getattr(append, "only_changes", False):
        return

    def checked(self, code):
        # A process ends with an update of each signal that it drives; most keep their value.
        if match := _UPDATE.fullmatch(code):
            code = f"if slots[{match[1]}].next != {match[2]}: {code}"
        append(self, code)

    def annotated(self):
        code = flush(self)
        if not code.startswith("def run():"):
            return code
        return (f"{code}\nrun.slots = {sorted(set(map(int, _SLOT.findall(code))))}\n"
                f"run.prints = {'print(' in code}\n")

    checked.only_changes, checked.library = True, (append, flush)
    emitter.append, emitter.flush = checked, annotated
    Simulator.__init__.__kwdefaults__["engine"] = QuickEngine


class _Process:
    """A process of the design: of a clock (``dirty`` if it has to run at the next edge), or a
    combinational one (``runnable`` while it is in the queue)."""

    __slots__ = ("dirty", "prints", "run", "runnable")

    def __init__(self, process):
        self.run, self.prints = process.run, process.run.prints
        self.runnable, self.dirty = False, True


class _Wakes:
    """What the processes of a design wait for at a slot.

    ``processes``: of a clock, for its edge to 0 and to 1; combinational ones. ``readers``: those of
    a clock that the slot is for.
    """

    __slots__ = ()

    def add_waker(self, waker):
        if waker.__code__ not in _WAKERS:
            super().add_waker(waker)
            return
        cells = dict(zip(waker.__code__.co_freevars, (c.cell_contents for c in waker.__closure__),
                         strict=True))
        self.processes[cells.get("polarity", 2)].append(cells["process"])

    def wake(self):
        for process in self.readers:
            process.dirty = True
        for process in self.processes[2]:
            if not process.runnable:
                process.runnable = True
                self.queue.append(process)


class _SignalState(_Wakes, pysim._PySignalState):
    __slots__ = ("edges", "processes", "queue", "readers")

    def commit(self):
        value = self.next
        if self.curr == value:
            return False
        self.wake()
        if value in (0, 1):
            self.edges.extend(self.processes[value])
        if self.wakers:
            pysim._run_wakers(self.wakers, self.curr, value)
        self.curr = value
        return True


class _MemoryState(_Wakes, pysim._PyMemoryState):
    __slots__ = ("edges", "processes", "queue", "readers")

    def write(self, addr, value, mask=None):
        if mask != 0:  # the library queues what changes nothing, too
            super().write(addr, value, mask)

    def commit(self):
        changed = super().commit()
        if changed:
            self.wake()
        return changed


class _State(pysim._PyEngineState):
    def __init__(self):
        super().__init__()
        #: Processes of clocks with an edge now, and combinational ones that have to run.
        self.edges, self.queue = [], []

    def _own(self, kind, what):
        slot = kind(what, self.pending)
        slot.edges, slot.queue = self.edges, self.queue
        slot.processes, slot.readers = ([], [], []), []
        self.slots.append(slot)
        return len(self.slots) - 1

    def get_signal(self, signal):
        try:
            return self.signals[signal]
        except KeyError:
            index = self.signals[signal] = self._own(_SignalState, signal)
            return index

    def get_memory(self, memory):
        try:
            return self.memories[memory]
        except KeyError:
            index = self.memories[memory] = self._own(_MemoryState, memory)
            return index


def _reader(state, value):
    """A function that returns the present value of an expression, as ``eval_value`` does."""
    if isinstance(value, Signal):
        slot = state.slots[state.get_signal(value)]
        return lambda: slot.curr
    if isinstance(value, Const):
        constant = value.value
        return lambda: constant
    if isinstance(value, Slice):
        whole, start, mask = _reader(state, value.value), value.start, (1 << len(value)) - 1
        return lambda: whole() >> start & mask
    if isinstance(value, Operator) and len(value.operands) == 2 and value.operator in _TWO:
        one, other = (_reader(state, operand) for operand in value.operands)
        function = _TWO[value.operator]
        return lambda: function(one(), other())
    if isinstance(value, Concat):
        parts, place = [], 0
        for part in value.parts:
            parts.append((_reader(state, part), (1 << len(part)) - 1, place))
            place += len(part)

        def concatenated():
            result = 0
            for read, mask, place in parts:
                result |= (read() & mask) << place
            return result
        return concatenated
    return lambda: _pyeval.eval_value(state, value)


class _Trigger(pysim._PyTriggerState):
    """Compiles what it samples if it does so again and again."""

    _steps = None

    def compute_result(self):
        if self._oneshot:
            super().compute_result()
            return
        if self._steps is None:
            self._steps = [self._step(trigger) for trigger in self._combination._triggers]
        self._result = tuple([step() for step in self._steps])

    def _step(self, trigger):
        if not isinstance(trigger, pysim.SampleTrigger | pysim.ChangedTrigger):
            return lambda: trigger in self._triggers_hit
        read, shape = _reader(self._engine.state, trigger.value), trigger.shape
        if isinstance(shape, ShapeCastable) and not isinstance(shape, Shape):
            return lambda: shape.from_bits(read())
        return read


class QuickEngine(pysim.PySimEngine):
    """The engine; see the module."""

    def __init__(self, design):
        self._design = design
        self._state = state = _State()
        #: Processes that are none of the design: clocks, and those that a test adds.
        self._processes = set()
        self._testbenches = []
        self._delta_cycles = 0
        self._vcd_writers = []
        self._active_triggers = set()
        own = {process: _Process(process)
               for process in pysim._FragmentCompiler(state)(design.fragment)}
        for slot in state.slots:
            slot.processes = tuple([own[p] for p in waiting] for waiting in slot.processes)
        self._clocked = [own[p] for p in own if not p.is_comb]
        for process in self._clocked:
            for number in process.run.slots:
                state.slots[number].readers.append(process)
        self._combinational = [own[p] for p in own if p.is_comb]
        self._begin()

    def _begin(self):
        for process in self._clocked:
            process.dirty = True
        for process in self._combinational:
            process.runnable = True
        self._state.edges.clear()
        self._state.queue[:] = self._combinational

    def reset(self):
        super().reset()
        self._begin()

    def forget_testbenches(self) -> None:
        """Take out all testbenches, and what these wait for."""
        self._testbenches.clear()
        self._active_triggers.clear()
        for slot in self._state.slots:
            slot.wakers.clear()

    def add_trigger_combination(self, combination, *, oneshot):
        return _Trigger(self, combination, self._active_triggers, oneshot=oneshot)

    def get_value(self, expr):
        value = expr if type(expr) is Signal else Value.cast(expr)
        if type(value) is Signal:
            return self._state.slots[self._state.get_signal(value)].curr
        return _pyeval.eval_value(self._state, value)

    def step_design(self):
        state, triggers, writers = self._state, self._active_triggers, self._vcd_writers
        edges, queue, converged = state.edges, state.queue, False
        while not converged:
            if triggers:
                for trigger in triggers:
                    trigger.run()
                triggers.clear()
            for process in self._processes:
                if process.runnable:
                    process.runnable = False
                    process.run()
            for process in edges:
                if process.dirty:
                    process.dirty = process.prints
                    process.run()
            edges.clear()
            for process in queue:
                process.runnable = False
                process.run()
            queue.clear()
            changed = set() if writers else None
            converged = state.commit(changed)
            for writer in writers:
                now = self._now_plus_deltas(writer.fs_per_delta)
                for change in changed:
                    if isinstance(change, _SignalState):
                        writer.update_signal(now, change.signal)
                    else:
                        writer.update_memory(now, change.state.memory, change.addr)
            self._delta_cycles += 1

    def advance(self):
        self.step_design()
        ran = True
        while ran:
            ran = False
            for testbench in self._testbenches:  # in the order in which they were added
                if testbench.runnable:
                    testbench.runnable = False
                    testbench.run()
                    ran = True
        self._state.timeline.advance()
        return any(one.critical for one in (*self._processes, *self._testbenches))
