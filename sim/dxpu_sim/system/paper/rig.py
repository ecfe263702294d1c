"""What a manager and an operating system set up around a :class:`~.design.PaperBench`, and its
steps: settings, traffic, figures."""

import cocotb
from cocotb.triggers import Timer, with_timeout
from cocotb.utils import get_sim_time

from dxpu_model.tlp import KINDS, Tlp
from dxpu_sim.pcie.ports import Mailbox
from dxpu_sim.pcie.switch_setup import set_up_switch
from dxpu_sim.system.setup import Proxy, bind, let_open, wait_for_session, wait_for_slot

from .design import GROUPS, NativeBench, PaperBench
from .gpu import FIELDS
from .pair import EVENTS, RATES

__all__ = ["ABOVE", "BASE", "WINDOW", "NativeRig", "Rig"]

#: Memory of GPUs: that of slot k of pair n is at BASE + n SPREAD + k WINDOW. Memory of a host.
BASE, SPREAD, WINDOW, ABOVE = 0x8000_0000, 0x1000_0000, 1 << 20, 0x20_0000_0000
#: Longest wait for the reads of a step, or for those that are under way after it.
PATIENCE_NS = 20_000_000


class NativeRig:
    """A :class:`~.design.NativeBench`: settings and figures of a step.

    A step is a dict: ``works`` has fields of :class:`~.gpu.Work` (sizes in bytes) for each group,
    ``groups`` the engines of each, as masks. ``warm_ns`` are left out, then ``ns`` are measured, or
    longer, until so many ``reads`` are logged; one of ``every`` is. Other keys are inputs of the
    design.
    """

    #: Engines, memories, and inputs that a step may set.
    engines, hosts, inputs = 1, 0, ("latency",)
    groups = 1

    def __init__(self, dut, period_ps=NativeBench.PERIOD_PS):
        self.dut, self._period_ps = dut, period_ps

    def set(self, **inputs):
        """Set inputs."""
        for name, value in inputs.items():
            getattr(self.dut, name).value = value

    def employ(self, group, work):
        """Give a group its work; nothing by default."""
        for name in FIELDS:
            value = work.get(name, 0)
            self.set(**{f"work{group}_{name}": value // 4 if name.endswith("dwords") else value})

    def figures(self):
        """Counts so far."""
        return {name: int(getattr(self.dut, name).value)
                for name in ("cycle", "read_bytes", "written_bytes")}

    async def cycles(self, count):
        """Let so many cycles pass."""
        await Timer(count * self._period_ps, "ps")

    async def start(self):
        """After reset; nothing is under way."""
        self.set(clear=0, at=0, every=1)
        for group in range(self.groups):
            self.employ(group, {})
        await self.cycles(64)

    def begin(self, step):
        """Set all inputs of a step."""
        self.set(**{name: step[name] for name in self.inputs if name in step})
        for group in range(self.groups):
            self.employ(group, step["works"][group] if group < len(step["works"]) else {})

    async def end(self):
        """Stop all traffic and wait until nothing is under way."""
        # Completions are still judged by the sizes of the work.
        self.set(**{f"work{group}_{what}": 0
                    for group in range(self.groups) for what in ("reads", "writes")})
        await self.cycles(4096)

    async def step(self, step):
        """Figures of a step: the change of each count, times in ns of all reads that were logged,
        and ``ns`` itself."""
        self.begin(step)
        self.set(every=step.get("every", 1))
        await Timer(step.get("warm_ns", 1), "ns")
        self.set(clear=1)
        await self.cycles(4)
        self.set(clear=0)
        await self.cycles(1)
        before, begun = self.figures(), get_sim_time("ns")
        await Timer(step["ns"], "ns")
        while (int(self.dut.count.value) < step.get("reads", 0)
               and get_sim_time("ns") - begun < PATIENCE_NS):
            await Timer(step["ns"], "ns")
        after = self.figures()
        count = int(self.dut.count.value)
        await self.end()
        assert int(self.dut.errors.value) == 0, f"{int(self.dut.errors.value)} errors"
        result = {name: after[name] - before[name] for name in before}
        result["ns"] = result.pop("cycle") * self._period_ps / 1000
        result["trips_ns"] = await self._log(count) if step.get("logged", 1) else []
        return result

    async def _log(self, count):
        trips = []
        for n in range(count):
            self.set(at=n)
            await self.cycles(4)
            trips.append(int(self.dut.found.value) * self._period_ps / 1000)
        return trips


class Rig(NativeRig):
    """A :class:`~.design.PaperBench`.

    Parameters
    ----------
    dut : cocotb handle
    design : dict
        Arguments of the design.
    settings : dict
        Of both proxies: ``packing_limit``, ``ack_delay``, ``retry_wait``.
    """

    inputs = ("latency", "delay", "loss", "watched", "forward",
              *(f"group{g}" for g in range(GROUPS)))
    groups = GROUPS

    def __init__(self, dut, design, settings):
        bench = PaperBench(**design)
        super().__init__(dut, RATES[design["rate"]].period_ps)
        self._pairs, self._slots = design.get("pairs", 1), design.get("slots", 8)
        self.engines, self.hosts = self._pairs * self._slots, self._pairs
        self._settings = settings
        self._mailboxes = [Mailbox(dut, f"host{n}") for n in range(self._pairs)]
        self._proxies = [[Proxy(dut, f"{name}{n}_bus", bench.pair.maps[name], node + n)
                          for name, node in (("host", 0x001), ("box", 0x101))]
                         for n in range(self._pairs)]

    def figures(self):
        names = ["cycle", "lost",
                 *(f"{name}{n}" for name in ("read_bytes", "arrived_bytes")
                   for n in range(self.engines)),
                 *(f"{name}{n}" for name in ("written_bytes", "to_host", "to_box")
                   for n in range(self.hosts))]
        return {name: int(getattr(self.dut, name).value) for name in names}

    async def start(self):
        self.set(setup=1, forward=0, loss=0, delay=64, latency=16, watched=0, group0=0, group1=0)
        await super().start()
        for n, (mailbox, (host, box)) in enumerate(
                zip(self._mailboxes, self._proxies, strict=True)):
            mailbox.link(True)
            await self._bind(host, box)

            async def configure(target, register, value=None, *, mailbox=mailbox):
                return await _configure(mailbox, target, register, value)

            await set_up_switch(configure, slots=self._slots, base=BASE + n * SPREAD,
                                window=WINDOW)
        # What slots are told when their links come up.
        await Timer(3, "us")
        self.set(setup=0)
        await self.cycles(8)

    async def _bind(self, host, box):
        settings = self._settings
        for proxy in (host, box):
            await proxy.write("control.fabric", packing_limit=settings["packing_limit"],
                              ack_delay=settings["ack_delay"])
            await proxy.write("control.retry", wait=settings["retry_wait"])
        await box.write("control.present", slots=(1 << self._slots) - 1)
        await let_open(host, box, peer_host=0, peer_box=0, boot=1, wait=64, quiet=16)
        await wait_for_session(host, 0)
        for n in range(self._slots):
            await bind(host, n, box, n + 1, generation=1, operation_id=1 + n)
            await wait_for_slot(host, n, link=1)

    def begin(self, step):
        super().begin({"loss": 0, "forward": 0, "watched": 0, "group0": 0, "group1": 0} | step)

    async def end(self):
        await super().end()
        waits = 0
        while any(int(getattr(self.dut, f"under_way{n}").value) for n in range(self.engines)):
            await Timer(5, "us")
            waits += 5000
            assert waits < PATIENCE_NS, "reads without an answer"

    def times(self):
        """Cycles of the last read of engine 0 on its way: begin, each of the events, end."""
        return [int(getattr(self.dut, name).value) for name in (
            "time_begin", *(f"time{n}" for n in range(len(EVENTS))), "time_end")]


async def _configure(mailbox, target, register, value):
    """Read or write a register of the function with an ID, as software sees it."""
    answers = []
    mailbox.received.append(answers.append)
    kind = ("CfgRd" if value is None else "CfgWr") + str(int(target > 0x1FF))
    fmt, type = KINDS[kind]
    await mailbox.send(Tlp(
        fmt, type, length=1, first_be=15, target_id=target, register=register // 4,
        payload=b"" if value is None else value.to_bytes(4, "little")).pack())

    async def answered():
        while not answers:
            await Timer(20, "ns")

    await with_timeout(cocotb.start_soon(answered()), 50, "us")
    mailbox.received.remove(answers.append) if answers.append in mailbox.received else None
    answer = Tlp.unpack(answers[0].raw)
    assert answer.status == 0, answer
    return int.from_bytes(answer.payload or b"", "little")
