"""Cases of the campaign: faults of the lines, and traffic of the ends."""

from dataclasses import dataclass, field, replace

from dxpu.fabric.engine import ARQ
from dxpu.fabric.wire.frame_types import FrameType

__all__ = ["ARQ", "GOODPUT_LOSSES", "Case", "campaign", "every", "goodput"]

#: Loss rates at which goodput is measured.
GOODPUT_LOSSES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
ALL = 0xFFFF
CONTROL = 1 << FrameType.ACK | 1 << FrameType.SACK
#: Masks of lateness: up to 33 us, and up to 524 us. The latter stands for the frame lifetime, as a
#: line must keep the bytes so long.
SHORT, LIFETIME = (1 << 12) - 1, (1 << 16) - 1
#: KiB in the queue of a switch to the box: more than all hosts may have under way if nothing is
#: withheld; what a box counts on; less than that.
QUEUES = (64, 16, 12)


def share(part: float) -> int:
    """A probability in 1/65536, as the hardware takes it."""
    return round(part * 65536)


@dataclass(frozen=True)
class Case:
    """Settings of :class:`~dxpu_sim.fabric.fault_design.FaultBench` for one run; times in cycles.

    ``retry_wait`` is in units of 64 cycles. Cases that need many timeouts have a shorter wait than
    the default of 488 (250 us), which shortens the simulation.
    """

    name: str
    text: str
    faults: dict = field(default_factory=dict)
    #: Ends with a source of TLPs.
    senders: tuple[str, ...] = ("host", "box")
    #: Payload dwords of each TLP, all posted and for one slot; 0: random traffic.
    fixed: int = 0
    packing_limit: int = 512
    ack_delay: int = 125
    retry_wait: int = 488
    delay: int = 125
    pause: int = 0
    stall: int = 0
    #: Longest time of a dead path, and of an end that takes no TLPs; microseconds.
    flap_us: int = 0
    shut_us: int = 0
    #: Class that both ends do not take from some rows, and the longest time of such a stop.
    starve: str = ""
    starve_us: int = 400
    #: Posted TLPs of 128 bytes that each row grants in addition to a proxy's grants.
    surplus: int = 0
    #: Sessions open by HELLO (else by registers); longest time between two resets of an end. TLPs
    #: under way at a reset are lost, and are no errors.
    hello: bool = False
    reboot_us: int = 0
    #: Waits of :class:`~dxpu.fabric.session.session.SessionKeeper`, in units of 64 cycles. Frames
    #: live for 524 us here, so the quiet time is 1.05 ms instead of 100 ms.
    hello_wait: int = 40
    quiet: int = 2048
    #: Number of hosts that send to one box through a switch, and bytes in the switch's queue to the
    #: box (:class:`~dxpu_sim.fabric.incast_design.IncastBench`, without other faults).
    #: Requirements: share of payload on the line, least part of an equal share for each host,
    #: whether frames may be dropped.
    hosts: int = 0
    queue_bytes: int = 0
    least_goodput: float = 0.0
    least_share: float = 0.0
    drops: bool = False
    #: Share of a campaign's TLPs, relative to other cases; less for slow cases.
    weight: float = 1.0
    #: Link mode of both engines.
    arq: str = ARQ[0]
    #: Faults that must have occurred, else the case shows nothing: names of
    #: :data:`~.score.HAPPENED`.
    shows: tuple[str, ...] = ()


def hit(types: int = ALL, **chances: float) -> dict:
    """Faults of frames of ``types``, with probabilities from 0 to 1."""
    return {"types": types, **{name: share(part) for name, part in chances.items()}}


def campaign() -> list[Case]:
    """All cases but those of :func:`goodput`."""
    late = {"lateness": SHORT}
    return [
        Case("clean", "nothing happens"),
        *(Case(f"loss {part:.1%}", f"{part:.1%} of all frames lost", hit(loss=part),
               weight=weight, shows=("lost", "repeated") if part > 0.001 else ())
          for part, weight in ((0.001, 1), (0.01, 2), (0.03, 1), (0.1, 0.4))),
        Case("bursts", "losses in bursts of 4 frames on average",
             hit(burst=0.01, relief=0.25), weight=0.5, shows=("lost", "repeated")),
        Case("control lost", "30% of ACK and SACK lost, nothing else", hit(CONTROL, loss=0.3),
             pause=share(0.99), shows=("lost",)),
        Case("data lost", "3% of all frames lost but ACK and SACK", hit(ALL & ~CONTROL, loss=0.03),
             shows=("lost", "repeated")),
        Case("third ACK", "the third ACK is lost",
             {"script_type": int(FrameType.ACK), "script_first": 2, "script_count": 1},
             pause=share(0.99), shows=("lost",)),
        Case("first frames", "the first five TLP frames are lost",
             {"script_type": int(FrameType.TLP), "script_first": 0, "script_count": 5},
             shows=("lost", "repeated")),
        Case("header changed", "a byte of the header of 3% of all frames is wrong, FCS repaired",
             {**hit(change=0.03), "place": 1}, shows=("changed", "repeated")),
        Case("body changed", "a byte behind the header of 3% of all frames is wrong, FCS repaired",
             {**hit(change=0.03), "place": 2}, shows=("changed", "repeated")),
        Case("doubled", "5% of all frames come twice", {**hit(twice=0.05), **late},
             shows=("twice", "duplicate")),
        Case("reordered", "3% of all frames come up to 33 us late", {**hit(late=0.03), **late},
             shows=("late", "repeated")),
        Case("old frames", "1% of all frames come again up to 524 us later",
             {**hit(twice=0.01), "lateness": LIFETIME}, shows=("twice", "duplicate")),
        Case("flapping paths", "both paths die in turn, again and again", retry_wait=20,
             flap_us=300, shows=("lost", "repeated", "path 1")),
        Case("slow ends", "both ends take nothing for up to 100 us, again and again",
             stall=share(0.3), shut_us=100),
        *(Case(f"starving {cls}", f"both ends take no {what} of some slots for 200 to 400 us, "
               "again and again; 20% of ACK and SACK lost", hit(CONTROL, loss=0.2),
               starve=cls, shows=("lost", "waited", "beside", f"starved {cls}"))
          for cls, what in (("p", "posted TLPs"), ("np", "non-posted TLPs"),
                            ("cpl", "completions"))),
        Case("idle line", "rare TLPs, 10% of all frames lost", hit(loss=0.1), pause=share(0.9995),
             retry_wait=40, weight=0.1, shows=("lost", "repeated", "timeout")),
        Case("handshake", "a session that opens by HELLO; 10% of all frames lost", hit(loss=0.1),
             hello=True, weight=0.4, shows=("lost", "opened")),
        Case("reboots", "both ends are reset again and again; old frames come up to 524 us later",
             {**hit(loss=0.01, twice=0.05, late=0.02), "lateness": LIFETIME}, hello=True,
             retry_wait=20, pause=share(0.9998), reboot_us=3000, weight=0.25,
             shows=("lost", "twice", "opened", "rebooted")),
        Case("everything", "losses, bursts, changes, copies, late frames, dying paths, slow ends",
             {**hit(loss=0.01, burst=0.002, relief=0.25, change=0.005, twice=0.01, late=0.01),
              "lateness": LIFETIME}, retry_wait=20, flap_us=400, shut_us=50, weight=2,
             shows=("lost", "changed", "twice", "late", "repeated", "duplicate", "path 1")),
    ]


def incast() -> list[Case]:
    """Eight hosts send to one box, all at the full rate of their lines, with go-back-N."""
    one = Case("incast, 64 KiB", "8 hosts to one box at full rate; the switch holds 64 KiB",
               hosts=8, fixed=32, packing_limit=1500, queue_bytes=QUEUES[0] << 10, weight=0.3,
               least_goodput=0.62, least_share=0.95)
    short, shorter = (replace(
        one, name=f"incast, {held} KiB", queue_bytes=held << 10, drops=True,
        text=f"the same; the switch holds {held} KiB") for held in QUEUES[1:])
    return [one, replace(short, least_goodput=0.6, least_share=0.9),
            replace(shorter, least_goodput=0.45, least_share=0.75, shows=("lost", "repeated"))]


def every(arq: str) -> list[Case]:
    """All cases in a link mode; names of all but the first mode include the mode."""
    if arq == ARQ[0]:
        return [*campaign(), *incast(), *goodput()]
    return [replace(case, name=f"{arq} {case.name}", arq=arq)
            for case in [*campaign(), *goodput()]]


def goodput() -> list[Case]:
    """Cases that measure goodput: writes of 128 bytes one way, packed to 1500, at several loss
    rates.

    They have more credits than a proxy gives a slot, so that the link is the limit.
    """
    return [Case(f"goodput {part:.1%}", f"host to box at full rate, {part:.1%} of all frames lost",
                 hit(loss=part) if part else {}, senders=("host",), fixed=32, packing_limit=1500,
                 surplus=90, weight=0.2 if part > 0.03 else 0.5)
            for part in GOODPUT_LOSSES]
