"""Judgement of a run of the campaign: each TLP once, in order and unchanged; each frame
explained."""

from dataclasses import dataclass

from . import incast
from .bad_line import OVERHEAD
from .cases import Case
from .fault_design import ENDS

__all__ = ["ERRORS", "HAPPENED", "Score", "goodput", "goodput_in_theory", "score"]

#: Errors of TLPs, with the total of the sink for each.
ERRORS = {"lost": "lost", "duplicated": "doubled", "reordered": "reordered", "passed": "passed",
          "changed": "changed"}
#: Faults that a case may have to show: name and counter, summed over both ends.
HAPPENED = {
    "lost": "to_{end}_path{path}_lost", "twice": "to_{end}_path{path}_twice",
    "late": "to_{end}_path{path}_late", "changed": "to_{end}_path{path}_changed",
    "frames": "to_{end}_path{path}_frames", "path 1": "to_{end}_path1_delivered",
    "repeated": "{end}_tx_repeated", "duplicate": "{end}_link_duplicate",
    "timeout": "{end}_retry_timeout", "nak": "{end}_link_nak",
    "opened": "{end}_session_opened", "rebooted": "{end}_session_rebooted",
    "waited": "{end}_tx_waited", "beside": "to_{end}_beside",
    "starved p": "to_{end}_starved_p", "starved np": "to_{end}_starved_np",
    "starved cpl": "to_{end}_starved_cpl",
}
#: Counters of an engine, one increment per received frame: taken, or the cause of the drop.
_FATES = ("rx_frames", "rx_fcs", "rx_runt", "rx_ethertype", "rx_version", "rx_hcrc", "rx_type",
          "rx_field", "rx_length", "rx_padding", "rx_record", "rx_body", "rx_refused",
          "rx_unhandled")
#: Causes in ``_FATES`` that a changed frame can have.
_CHANGED = ("rx_ethertype", "rx_version", "rx_hcrc", "rx_type", "rx_field", "rx_length",
            "rx_padding", "rx_record", "rx_body")
#: Causes in ``_CHANGED`` found behind the header.
_BODIES = ("rx_length", "rx_padding", "rx_record", "rx_body")
#: Reasons of the link for a refusal.
_REFUSED = ("link_wrong_node", "link_no_session", "link_wrong_tag", "link_duplicate", "link_gap",
            "link_stray")
PATHS = 2
CYCLES_PER_S = 125e6


@dataclass(frozen=True)
class Score:
    """Judgement of one run.

    ``errors``: counts by name of :data:`ERRORS`. ``happened``: counts by name of :data:`HAPPENED`.
    ``problems``: lines for people, none for a good run. ``silent``: faults that the case must show,
    but that did not occur.
    """

    tlps: int
    errors: dict[str, int]
    happened: dict[str, int]
    problems: tuple[str, ...]
    silent: tuple[str, ...] = ()


def _total(result: dict, pattern: str) -> int:
    names = {pattern.format(end=end, path=path) for end in ENDS for path in range(PATHS)}
    return sum(result[name] for name in names)


def score(case: Case, result: dict) -> Score:
    """Judge the counts of the bench in a run of ``case``."""
    if case.hosts:
        return _score_incast(case, result)
    problems = [result["stuck"]] if result["stuck"] else []
    errors = {name: 0 for name in ERRORS}
    tlps = 0
    for end, peer in zip(ENDS, reversed(ENDS), strict=True):
        came, sent = result[f"to_{end}_total_tlps"], result[f"{peer}_made"]
        tlps += came
        for name, total in ERRORS.items():
            errors[name] += result[f"to_{end}_total_{total}"]
        # TLPs lost behind the last received TLP leave no gap; gaps are counted already.
        errors["lost"] += max(0, sent - came + result[f"to_{end}_total_doubled"]
                              - result[f"to_{end}_total_lost"])
        if not case.reboot_us:  # a reset makes an engine forget frames, too
            problems += _frames(end, peer, result)
        if excess := result[f"to_{end}_excess"]:
            problems.append(f"{excess:,} TLPs came to the {end} without credits")
    happened = {name: _total(result, pattern) for name, pattern in HAPPENED.items()}
    if case.reboot_us:
        errors |= {"lost": 0, "passed": 0}
    problems += [f"{count:,} TLPs {name}" for name, count in errors.items() if count]
    return Score(tlps, errors, happened, tuple(problems), _silent(case, happened))


def _silent(case, happened):
    return tuple(name for name in case.shows if not happened[name])


def _score_incast(case, result):
    hosts, came = range(case.hosts), result["to_box_total_tlps"]
    errors = {name: result[f"to_box_total_{total}"] for name, total in ERRORS.items()}
    errors["lost"] += max(0, sum(result[f"host{n}_made"] for n in hosts) - came
                          + result["to_box_total_doubled"] - result["to_box_total_lost"])
    happened = {name: sum(result[pattern.format(end=end)] for end in ENDS)
                if pattern.format(end="box") in result else 0
                for name, pattern in (HAPPENED | {
                    "lost": "{end}_port_tx_overflow", "frames": "{end}_port_rx_frames",
                    "beside": ""}).items() if "path" not in pattern}
    happened = {name: happened.get(name, 0) for name in HAPPENED}
    found = [result["stuck"]] if result["stuck"] else []
    found += incast.problems(case, result, _FATES)
    if excess := result["to_box_excess"]:
        found.append(f"{excess:,} TLPs came to the box without credits")
    found += [f"{count:,} TLPs {name}" for name, count in errors.items() if count]
    return Score(came, errors, happened, tuple(found), _silent(case, happened))


def _frames(end, peer, result):
    """Frames to ``end`` that do not add up; nothing for a stuck run, with frames on their way."""
    if result["stuck"]:
        return []

    def line(name):
        return sum(result[f"to_{end}_path{path}_{name}"] for path in range(PATHS))

    def engine(names, of=end):
        return sum(result[f"{of}_{name}"] for name in names)

    dropped = engine([f"rx_overflow{path}" for path in range(PATHS)]) + engine(["rx_overflow"])
    sums = {
        "sent by the engine and taken by the lines":
            (engine(["tx_frames"], peer), line("frames")),
        "taken by the lines and lost or delivered":
            (line("frames") + line("twice"), line("lost") + line("delivered")),
        "delivered and counted by cause": (line("delivered"), engine(_FATES) + dropped),
    }
    refused, causes, bad = (engine(names) for names in (["rx_refused"], _REFUSED, _BODIES))
    # The link counts after the header; the rest of the frame may be bad as well.
    if not refused <= causes <= refused + bad:
        sums["refused by the link and by cause"] = (refused, causes)
    if not line("twice") and not line("late") and not dropped:
        sums["changed and dropped for it"] = (line("changed"), engine(_CHANGED))
    return [f"frames to the {end} {what}: {a:,}, {b:,}"
            for what, (a, b) in sums.items() if a != b]


def goodput(result: dict) -> float:
    """Payload bytes per second that reached the box, from the first frame to the last TLP."""
    return 4 * result["to_box_total_payload"] / (result["to_box_total_cycle"] / CYCLES_PER_S)


def goodput_in_theory(loss: float, *, frame: int, delay: int, nak: int = 64) -> float:
    """Part of the goodput without loss that go-back-N keeps at random losses of frames.

    A loss costs all frames sent from the lost frame to the arrival of its NAK: the frame itself,
    the next frame (which shows the gap), the delay in both directions, the NAK, and on average half
    a frame more, as the frame under way is not interrupted. All of these are sent again.

    Parameters
    ----------
    loss : float
    frame, nak : int
        Bytes of a frame, without preamble, FCS and gap.
    delay : int
        Delay in one direction, in byte times.
    """
    time = frame + OVERHEAD
    window = 1 + (time + 2 * delay + nak + OVERHEAD + time / 2) / time
    return (1 - loss) / (1 - loss + loss * window)
