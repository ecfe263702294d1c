"""Stages of reads through the fabric, with times from the probes of the system."""

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu.stage import NOTE_BITS
from dxpu.tlp.types import Fmt, Type

from .nodes import BOX_NODE, HOST_NODE

__all__ = ["CYCLE_NS", "Recorder", "conversions", "parts", "take_apart"]

#: Clock of the proxies' cores and of GMII.
CYCLE_NS = 8
#: More than a frame takes from proxy to proxy.
QUIET_NS = 5_000

#: Each stage between request and completion: lane, name, kind, proxy and probe of the end.
STAGES = (
    ("root complex", "request", "PCIe", "host", "pcie_in"),
    ("host proxy", "conversion 1", "conversion", "host", "frame_out"),
    ("host proxy", "send", "MAC", "host", "gmii_tx"),
    ("Ethernet", "switch", "Ethernet", "box0", "gmii_rx"),
    ("box 0 proxy", "receive", "MAC", "box0", "frame_in"),
    ("box 0 proxy", "conversion 2", "conversion", "box0", "pcie_out"),
    ("GPU 0", "read", "GPU", "box0", "pcie_in"),
    ("box 0 proxy", "conversion 3", "conversion", "box0", "frame_out"),
    ("box 0 proxy", "send", "MAC", "box0", "gmii_tx"),
    ("Ethernet", "switch", "Ethernet", "host", "gmii_rx"),
    ("host proxy", "receive", "MAC", "host", "frame_in"),
    ("host proxy", "conversion 4", "conversion", "host", "pcie_out"),
)
#: What is probed inside a proxy during each conversion: proxy, and events in order.
INSIDE = (
    ("host", ("out_parsed", "out_decided", "out_tracked", "out_planned", "out_routed")),
    ("box0", ("in_received", "in_judged", "in_parsed")),
    ("box0", ("out_parsed", "out_planned", "out_routed")),
    ("host", ("in_received", "in_judged", "in_parsed", "in_tracked", "in_decided")),
)
#: Node numbers of both proxies.
NODES = {"host": HOST_NODE, "box0": BOX_NODE}
#: Probes of frames at the end that sends, in order, and then at the end that receives; and all
#: probes whose notes do not tell what a TLP is.
SENT = ("out_planned", "out_routed", "out_framed", "frame_out", "gmii_tx")
ARRIVED = ("gmii_rx", "frame_in", "in_judged")
OF_FRAMES = {*SENT, *ARRIVED, "out_packed"}


def first_byte(fmt, type):
    """First byte of a TLP (PCIe Base 5.0, 2.2.1): the note of its events."""
    return fmt << 5 | type


#: Memory reads, and their completions with data.
READS = {first_byte(fmt, Type.MEMORY) for fmt in (Fmt.HEADER_3, Fmt.HEADER_4)}
COMPLETIONS = {first_byte(Fmt.HEADER_3_DATA, Type.COMPLETION)}


class Recorder:
    """All events of the host's and of box 0's probes, from :meth:`start` to :meth:`stop`.

    Reads of GPU 0 are followed through both proxies: TLPs by what they are, as there are no other
    reads and no completions, and frames by their number, as a path delivers them in order.

    Parameters
    ----------
    system : :class:`~dxpu_sim.system.system.SimulatedSystem`
        With one path.
    """

    def __init__(self, system):
        dut = system.dut
        self._events = {
            (proxy, event): [] for proxy in ("host", "box0")
            for event in {*SENT, *ARRIVED, "pcie_in", "pcie_out", "out_packed",
                          *(name for where, names in INSIDE if where == proxy for name in names)}}
        self._tasks = [cocotb.start_soon(_note(dut, proxy, event, events))
                       for (proxy, event), events in self._events.items()]

    async def start(self):
        """Wait for an idle fabric and record from then on."""
        await self._quiet()
        for events in self._events.values():
            events.clear()

    async def stop(self):
        """Wait for an idle fabric and record no more.

        Raises
        ------
        RuntimeError
            Frames were lost, so that their numbers tell nothing.
        """
        await self._quiet()
        for task in self._tasks:
            task.cancel()
        for sender, receiver in (("host", "box0"), ("box0", "host")):
            # With frames to and from others.
            for proxy, names in ((sender, SENT), (receiver, ARRIVED)):
                counts = {name: len(self._events[proxy, name]) for name in names}
                if len(set(counts.values())) != 1:
                    raise RuntimeError(f"{proxy} dropped frames: {counts}")
            if (len(self._frames(sender, "out_routed", receiver))
                    != len(self._frames(receiver, "in_judged", sender))):
                raise RuntimeError(f"frames from {sender} to {receiver} were lost")

    def read(self, number):
        """Times of a read, in ns: (proxy, event) to time, for the request and for the completion.

        Raises
        ------
        RuntimeError
            If there was no such event.
        """
        return (self._way("host", "box0", READS, number),
                self._way("box0", "host", COMPLETIONS, number))

    async def _quiet(self):
        """Wait until no frame is under way."""
        before = None
        while before != (count := sum(map(len, self._events.values()))):
            before = count
            await Timer(QUIET_NS, "ns")

    def _frames(self, proxy, event, other):
        """Numbers of the frames between two proxies among those at a probe."""
        node = NODES[other] & (1 << NOTE_BITS) - 1
        return [n for n, (_, note) in enumerate(self._events[proxy, event]) if note == node]

    def _of(self, proxy, event, kinds):
        return [(time, n) for n, (time, note) in enumerate(self._events[proxy, event])
                if note in kinds]

    def _way(self, sender, receiver, kinds, number):
        """Times of the TLP of that number of its kinds."""
        times = {}
        try:
            for proxy, event in self._events:
                out = event.startswith("out") or event == "pcie_in"
                if proxy == (sender if out else receiver) and event not in OF_FRAMES:
                    times[proxy, event], place = self._of(proxy, event, kinds)[number]
                    if event == "in_received":
                        position = place
            # TLPs come out in the order in which they were packed, each before the end of its
            # frame.
            packed, _ = self._events[sender, "out_packed"][position]
            sent = sum(time < packed for time, _ in self._events[sender, "out_framed"])
            arrived = self._frames(receiver, "in_judged", sender)[
                self._frames(sender, "out_routed", receiver).index(sent)]
            for proxy, names, frame in ((sender, SENT, sent), (receiver, ARRIVED, arrived)):
                for name in names:
                    times[proxy, name], _ = self._events[proxy, name][frame]
        except (IndexError, ValueError):
            raise RuntimeError(f"read {number} was not seen on its whole way from {sender} to "
                               f"{receiver}") from None
        return times


async def take_apart(system, events=None, driver=None) -> list[dict]:
    """Read a register of a GPU on an idle fabric with one path; return the stages of the read.

    The GPU is that of ``driver``, in box 0; GPU 0 without one.

    Each stage is a dict of ``lane``, ``name``, ``start_ns``, ``end_ns`` and ``kind``, the arguments
    of :class:`dxpu_sim.system.timeline.Stage`; each stage starts where the stage before ended. The
    four stages of kind ``conversion`` are the traversals of a proxy, PCIe to frame or frame to
    PCIe: the first two carry the request, the others the completion. They begin with the first beat
    of the TLP, or the last beat of the frame from the MAC, and end with the first beat of the
    output.

    Times of all events on the way are added to the list ``events``, for :func:`parts`.

    Raises
    ------
    RuntimeError
        Of :class:`Recorder`.
    """
    recorder = Recorder(system)
    await recorder.start()
    begin = get_sim_time("ns")
    await (driver or system.drivers[0]).read_register("SCRATCH")
    end = get_sim_time("ns")
    await system.idle()
    await recorder.stop()
    ways = recorder.read(0)
    if events is not None:
        events.extend(ways)
    return [*stages(ways, begin), {
        "lane": "root complex", "name": "completion", "start_ns": ends(ways)[-1], "end_ns": end,
        "kind": "PCIe"}]


def ends(ways):
    """Times of the ends of :data:`STAGES`, from :meth:`Recorder.read`."""
    half = len(STAGES) // 2
    return [ways[n >= half][proxy, probe] for n, (*_, proxy, probe) in enumerate(STAGES)]


def stages(ways, begin):
    """:data:`STAGES` of a read that began at ``begin``, without the last one, as dicts."""
    found = ends(ways)
    return [{"lane": lane, "name": name, "start_ns": start, "end_ns": end, "kind": kind}
            for (lane, name, kind, *_), start, end in zip(
                STAGES, [begin, *found], found, strict=False)]


async def _note(dut, proxy, event, events):
    """Append time in ns and note of each event of a probe to ``events``."""
    probe = getattr(dut, f"probe_{proxy}_{event}")
    while True:
        await probe.value_change
        newest = int(probe.value)
        # The cycle of the event is the cycle before the probe shows it.
        age = (int(dut.cycle.value) - newest) & 0xffffffff
        events.append((get_sim_time("ns") - age * CYCLE_NS, newest >> 32))


def parts(stages: list[dict], ways) -> list[dict[str, int]]:
    """Cycles from the beginning of each of the four conversions to the events inside it, and to its
    end (``"out"``)."""
    found = []
    whole = [s for s in stages if s["kind"] == "conversion"]
    for n, (stage, (proxy, names)) in enumerate(zip(whole, INSIDE, strict=True)):
        cycles = {name.split("_")[1]: cycles_of(stage["start_ns"], ways[n // 2][proxy, name])
                  for name in names}
        found.append(cycles | {"out": cycles_of(stage["start_ns"], stage["end_ns"])})
    return found


def cycles_of(begin, end):
    """Cycles between two times in ns."""
    return round((end - begin) / CYCLE_NS)


def conversions(stages: list[dict]) -> list[int]:
    """Cycles of the four traversals in ``stages``."""
    return [cycles_of(s["start_ns"], s["end_ns"]) for s in stages if s["kind"] == "conversion"]
