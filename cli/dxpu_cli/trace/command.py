"""``dxpu trace``: shows where one TLP was, and when, in a capture."""

import argparse
import json
from itertools import pairwise
from pathlib import Path

from dxpu.tlp.types import TlpClass
from dxpu_cli.main import require
from dxpu_cli.options import decimal_number, whole_number
from dxpu_model.text import frame_text, id_text, tlp_text
from dxpu_tools.errors import UserError

from .journeys import Journey, journeys
from .sights import Sight, sights

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("file", metavar="FILE",
                        help="capture, as `dxpu demo --pcap` or a mirror port makes it")
    parser.add_argument("--tag", metavar="N", help="a request with that tag")
    parser.add_argument("--requester", metavar="BUS:DEV.FN", help="by that requester")
    parser.add_argument("--address", metavar="A", help="to that address")
    parser.add_argument("--packet", metavar="N",
                        help="in that packet of the capture, as Wireshark counts")
    parser.add_argument("--which", metavar="N", default="1", help="of several, the N-th")
    parser.add_argument("--cycle-ns", metavar="T", default="8", help="period of the core clock")
    parser.add_argument("--picture", metavar="FILE", help="draw the way, as SVG or PNG")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Find the TLP, and show its way."""
    require("sim")
    which = whole_number("--which", arguments.which, 1, 1 << 30)
    cycle = decimal_number("--cycle-ns", arguments.cycle_ns, 0.01, 1000)
    wanted = _wanted(arguments)
    if arguments.picture and Path(arguments.picture).suffix not in (".svg", ".png"):
        raise UserError(f"--picture must end in .svg or .png, not {arguments.picture!r}")
    found = [journey for journey in journeys(sights(Path(arguments.file))) if wanted(journey)]
    if not found:
        raise UserError(f"no such TLP in {arguments.file!r}: `dxpu trace FILE` shows the first one "
                        "of all")
    if which > len(found):
        raise UserError(f"--which must be at most {len(found)}: there are no more such TLPs")
    journey = found[which - 1]
    if arguments.json:
        print(json.dumps(_as_data(journey), indent=2))
    else:
        print("\n".join(_lines(journey, cycle)))
        if len(found) > 1:
            print(f"\n{which} of {len(found)} such TLPs: --which shows another one")
    if arguments.picture:
        _draw(journey, Path(arguments.picture), cycle)
    return 0


def _id(text: str) -> int:
    try:
        bus, rest = text.split(":")
        device, function = rest.split(".")
        value = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
    except ValueError:
        value = -1
    if value not in range(1 << 16) or id_text(value) != text.lower():
        raise UserError(f"--requester must be an ID such as 01:00.0, not {text!r}")
    return value


def _wanted(arguments: argparse.Namespace):
    """A function that says whether a journey is one of those asked for."""
    tag = None if arguments.tag is None else whole_number("--tag", arguments.tag, 0, 1023)
    packet = (None if arguments.packet is None
              else whole_number("--packet", arguments.packet, 1, 1 << 40))
    requester = None if arguments.requester is None else _id(arguments.requester)
    address = None
    if arguments.address is not None:
        try:
            address = int(arguments.address.replace("_", ""), 16)
        except ValueError:
            raise UserError(f"--address must be hexadecimal, such as 0xf0000060, not "
                            f"{arguments.address!r}") from None

    def fits(journey: Journey) -> bool:
        info = journey.first.info
        return ((tag is None or info.cls is TlpClass.NP and info.tag == tag)
                and (requester is None or info.requester_id == requester)
                and (address is None or info.address is not None
                     and info.address <= address < info.address + 4 * (info.length or 1024))
                and (packet is None or any(s.packet == packet for s in journey.sights)))

    return fits


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
