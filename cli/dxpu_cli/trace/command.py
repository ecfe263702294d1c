"""``dxpu trace``: shows where one TLP was, and when, in a capture."""

import argparse
import json
from itertools import pairwise
from pathlib import Path

from dxpu_cli.main import require
from dxpu_cli.options import decimal_number
from dxpu_model.text import frame_text, id_text, tlp_text
from dxpu_tools.errors import UserError

from .journeys import Journey
from .selection import Selection, add_selection
from .sights import Sight

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("file", metavar="FILE",
                        help="capture, as `dxpu demo --pcap` or a mirror port makes it")
    add_selection(parser)
    parser.add_argument("--cycle-ns", metavar="T", default="8", help="period of the core clock")
    parser.add_argument("--picture", metavar="FILE", help="draw the way, as SVG or PNG")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Find the TLP, and show its way."""
    require("sim")
    cycle = decimal_number("--cycle-ns", arguments.cycle_ns, 0.01, 1000)
    wanted = Selection.of(arguments)
    if arguments.picture and Path(arguments.picture).suffix not in (".svg", ".png"):
        raise UserError(f"--picture must end in .svg or .png, not {arguments.picture!r}")
    found = wanted.find(Path(arguments.file))
    journey = wanted.one(found, arguments.file)
    if arguments.json:
        print(json.dumps(_as_data(journey), indent=2))
    else:
        print("\n".join(_lines(journey, cycle)))
        if len(found) > 1:
            print(f"\n{wanted.which} of {len(found)} such TLPs: --which shows another one")
    if arguments.picture:
        _draw(journey, Path(arguments.picture), cycle)
    return 0


def _what(sight: Sight) -> str:
    """The TLP at a place, in words."""
    if sight.frame is None:
        said = f"{sight.way or '-':<4}{tlp_text(sight.raw)}"
    else:
        said = f"    {frame_text(sight.frame)}: {tlp_text(sight.raw)}"
    return said + " (sent again)" * sight.again + f" ({sight.comment})" * bool(sight.comment)


def _lines(journey: Journey, cycle: float):
    first = journey.first
    wide = max(len(sight.place) for sight in journey.sights)
    yield f"{journey.text}, by {id_text(first.info.requester_id)}"
    yield f"{'packet':>8}{'ns':>14}{'+ ns':>10}{'cycles':>8}  {'where':<{wide}}  what"
    before = first.time_ns
    for sight in journey.sights:
        step = sight.time_ns - before
        plus = f"{step:>10,}{step / cycle:>8.0f}" if sight is not first else " " * 18
        yield f"{sight.packet:>8}{sight.time_ns:>14,}{plus}  {sight.place:<{wide}}  {_what(sight)}"
        before = sight.time_ns
    whole = journey.sights[-1].time_ns - first.time_ns
    yield f"{'in all':<22}{whole:>10,}{whole / cycle:>8.0f}"


def _as_data(journey: Journey) -> dict[str, object]:
    return {"tlp": journey.text, "requester": id_text(journey.first.info.requester_id), "sights": [
        {"packet": s.packet, "time_ns": s.time_ns, "place": s.place, "way": s.way,
         "tlp": tlp_text(s.raw), "raw": s.raw.hex(),
         "frame": frame_text(s.frame) if s.frame else None, "again": s.again,
         "comment": s.comment} for s in journey.sights]}


def _draw(journey: Journey, path: Path, cycle: float) -> None:
    from dxpu_sim.system.timeline import Stage, draw
    stages = [Stage(here.place, _stage(here, there), here.time_ns, there.time_ns,
                    _kind(here, there)) for here, there in pairwise(journey.sights)]
    if not stages:
        raise UserError("the TLP was seen at one place only: there is nothing to draw")
    try:
        draw(stages, list(dict.fromkeys(stage.lane for stage in stages)), [path],
             title=journey.text, cycle_ns=cycle)
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _stage(here: Sight, there: Sight) -> str:
    return f"to {there.place}" if there.place != here.place else "answers"


def _kind(here: Sight, there: Sight) -> str:
    """Kind of a stage, by the places at its ends."""
    if here.frame is None and there.frame is None:
        return "GPU" if here.place == there.place else "PCIe"
    return "conversion" if here.frame is None else "Ethernet"
