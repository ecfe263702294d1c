"""Steps of the simulations for the tables of the paper, and all assumptions.

A part has steps for :class:`~.rig.Rig`. Tables, figures and equations are of He et al., "DxPU", ACM
TACO 2023.
"""

from dataclasses import dataclass

from dxpu.fabric.wire.format import HEADER_BYTES, RECORD_ALIGN, RECORD_CRC_BYTES

from .lines import FRACTION, Wire
from .pair import RATES
from .rig import ABOVE, BASE, WINDOW

__all__ = ["NATIVE_LATENCY_NS", "NATIVE_NS", "PACKING", "PARTS", "READ_BYTES", "TAGS",
           "WRITE_BYTES", "Setup", "line_limit", "native_steps", "setups"]

#: Reads under way, and bytes of each (sections 3.4 and 4.2); bytes of a write, which native
#: bandwidth to the host suggests (12.5 GB/s).
TAGS, READ_BYTES, WRITE_BYTES = 140, 128, 128
#: Round trip without DxPU (Table 6), and what of it is the time of the memory: the rest is what the
#: model of PCIe takes for a read.
NATIVE_NS, NATIVE_LATENCY_NS = 1200, 1192
#: Bytes up to which TLPs share a frame.
PACKING = 1500
#: Least cycles of a TLP in a :class:`~dxpu.switch.VirtualSwitch`.
SWITCH_CYCLES = 3
#: Round trips, or more, of a measurement of bandwidth for Eq. 1.
ROUNDS = 20
#: Of the completions: Read Completion Boundary of the host.
COMPLETION_BYTES = 64


@dataclass(frozen=True)
class Setup:
    """Bench and network at a rate; times in ns.

    ``one_way_ns`` is the way of a frame from MAC to MAC without the frame's own length: switch,
    FEC, cables. ``slow_ns`` are further networks, for Eq. 1. ``retry_wait`` is in units of 64
    cycles.
    """

    rate: str
    pairs: int
    slots: int
    one_way_ns: float
    slow_ns: tuple[float, ...]
    retry_wait: int
    window_ns: int
    losses: tuple[float, ...] = (0.0, 0.001, 0.003, 0.01, 0.03)
    loads: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.8)

    @property
    def design(self):
        """Arguments of :class:`~.design.PaperBench`."""
        return {"rate": self.rate, "pairs": self.pairs, "slots": self.slots}

    @property
    def settings(self):
        """Of the proxies."""
        return {"packing_limit": PACKING, "ack_delay": 20 if self.shape.line else 125,
                "retry_wait": self.retry_wait}

    @property
    def shape(self):
        return RATES[self.rate]

    def cycles(self, ns):
        """Whole cycles of a time."""
        return round(ns * 1000 / self.shape.period_ps)

    def step(self, *works, **keys):
        """A step at the usual network: works with their groups, and more."""
        return {"latency": self.cycles(NATIVE_LATENCY_NS), "delay": self.cycles(self.one_way_ns),
                "works": [work for work, _ in works], "warm_ns": self.window_ns // 3,
                "ns": self.window_ns,
                **{f"group{n}": mask for n, (_, mask) in enumerate(works)}} | keys


#: 100G: a cut-through switch of 250 ns, RS-FEC of both links (PG203, table A-4: 21.7 ns and 114.8
#: ns for each), two cables of 5 m. Slower: a switch of 1 us; round trips of 4.9 and 6.8 us; 10 us.
FEC_NS, CABLE_NS = 21.7 + 114.8, 25.0
_FAST = 250 + 2 * FEC_NS + 2 * CABLE_NS
SETUPS = {each.rate: each for each in (
    Setup("100G", 2, 8, _FAST, (1000 + _FAST - 250, 1680.0, 2630.0, 4200.0), 60, 24_000),
    Setup("10G", 1, 2, 250 + 2 * CABLE_NS, (), 60, 60_000),
    Setup("1G", 1, 2, 1000.0, (), 488, 300_000),
)}


def setups(rates):
    """The setups of some rates."""
    return [SETUPS[rate] for rate in rates]


def reads(**keys):
    """All tags read blocks of a host's memory."""
    return {"reads": 1, "tags": TAGS, "read_dwords": READ_BYTES, "chance": 1 << 16,
            "read_address": ABOVE} | keys


def writes(**keys):
    """Writes to a host's memory."""
    return {"writes": 1, "write_dwords": WRITE_BYTES, "chance": 1 << 16,
            "write_address": ABOVE} | keys


def native_steps():
    """Without proxies: round trips, reads, writes."""
    common = {"latency": NATIVE_LATENCY_NS // 2, "ns": 24_000, "warm_ns": 8_000}
    return [common | {"works": [reads(tags=1)], "reads": 100}, common | {"works": [reads()]},
            common | {"works": [writes()]}]


def line_limit(setup, payload, header):
    """Least GB/s of payload, with ``header`` bytes in each TLP, of a full line and of the switch of
    the host proxy, where each beat has bytes of one TLP, and a TLP takes 3 cycles or more."""
    record = -(-(header + payload + RECORD_CRC_BYTES) // RECORD_ALIGN) * RECORD_ALIGN
    count = min(31, (PACKING - HEADER_BYTES) // record)
    line = setup.shape.gbit_s / 8 * count * payload / (
        HEADER_BYTES + count * record + Wire.OVERHEAD)
    cycles = max(SWITCH_CYCLES, -(-(header + payload) * 8 // setup.shape.width))
    return min(line, payload / cycles / setup.shape.period_ps * 1000)


def trip_steps(setup):
    """Eq. 1: round trip, then bandwidth, at each network."""
    found = []
    for one_way in (setup.one_way_ns, *setup.slow_ns):
        delay = setup.cycles(one_way)
        # Many round trips: reads come in bunches, and a bunch more or less must not count.
        ns = max(setup.window_ns, round(ROUNDS * 2 * (one_way + NATIVE_NS)))
        found += [_lone(setup, 40) | {"delay": delay},
                  setup.step((reads(), 1), delay=delay, logged=0, ns=ns, warm_ns=ns // 4)]
    return found


def _lone(setup, count, **keys):
    """Reads of one GPU, one at a time, at no fixed distance."""
    return setup.step((reads(tags=1, chance=(1 << 16) // setup.cycles(1000)), 1),
                      reads=count, warm_ns=1, **keys)


def latency_steps(setup):
    """Table 6: lone reads."""
    return [_lone(setup, 200)]


def bandwidth_steps(setup):
    """Table 7: host to GPU, GPU to host."""
    return [setup.step((reads(), 1), logged=0), setup.step((writes(), 1), logged=0)]


def peer_steps(setup):
    """Figure 7: writes of GPU 0 to GPU 1 of its box, and to GPU 0 of the other host's box."""
    from .rig import SPREAD
    found = [setup.step((writes(write_address=BASE + WINDOW), 1), logged=0)]
    if setup.pairs > 1:
        found.append(setup.step((writes(write_address=BASE + SPREAD), 1), logged=0, forward=1))
    return found


def spread(setup):
    """Table 12: GPUs, proxies, and the mask of their engines."""
    found = []
    for proxies in range(1, setup.pairs + 1):
        for gpus in (1, 2, 4, 8):
            each = gpus // proxies
            if each and each <= setup.slots:
                found.append((gpus, proxies, sum(
                    ((1 << each) - 1) << n * setup.slots for n in range(proxies))))
    return found


def scaling_steps(setup):
    """Table 12: all GPUs read."""
    return [setup.step((reads(), mask), logged=0) for *_, mask in spread(setup)]


def load_steps(setup):
    """Lone reads of GPU 0, while GPU 1 reads and writes at random: a share of the line each way."""
    found = []
    for load in setup.loads:
        # Cycles of a TLP of 128 bytes on the line, and of its beats at the port.
        record = 1.28 * WRITE_BYTES
        line = (setup.shape.line or FRACTION / 8 * setup.shape.period_ps / 1000) / FRACTION
        apart = record / line / load
        beats = -(-(WRITE_BYTES + 16) * 8 // setup.shape.width)
        chance = 1 / max(1.0, (apart - beats) / 2)
        both = reads() | writes() | {"chance": min(1 << 16, round((1 << 16) * chance))}
        found.append(setup.step((reads(tags=1, chance=(1 << 16) // setup.cycles(1000)), 1),
                                (both, 2), reads=200))
    return found


def loss_steps(setup):
    """Reads with all tags, while frames are lost both ways."""
    return [setup.step((reads(), 1), loss=round(loss * 65536), every=4,
                       ns=setup.window_ns * (10 if loss else 1)) for loss in setup.losses]


#: Part of the bench to its steps at a rate.
PARTS = {"latency": latency_steps, "bandwidth": bandwidth_steps, "trips": trip_steps,
         "scaling": scaling_steps, "peers": peer_steps, "load": load_steps, "loss": loss_steps}
