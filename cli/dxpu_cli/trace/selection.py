"""Options of commands for the choice of a TLP in a capture."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dxpu.tlp.types import TlpClass
from dxpu_cli.options import whole_number
from dxpu_model.text import id_text
from dxpu_tools.errors import UserError

from .journeys import Journey, journeys
from .sights import sights

__all__ = ["Selection", "add_selection"]


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options for the choice of a TLP."""
    parser.add_argument("--tag", metavar="N", help="a request with that tag")
    parser.add_argument("--requester", metavar="BUS:DEV.FN", help="by that requester")
    parser.add_argument("--address", metavar="A", help="to that address")
    parser.add_argument("--packet", metavar="N",
                        help="in that packet of the capture, as Wireshark counts")
    parser.add_argument("--which", metavar="N", default="1", help="of several, the N-th")


@dataclass(frozen=True)
class Selection:
    """Choice by the options of :func:`add_selection`."""

    fits: Callable[[Journey], bool]
    #: Of several, from 1.
    which: int
    #: Whether there is any condition.
    given: bool

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Selection":
        """Checked options; the first wrong value raises :exc:`~dxpu_tools.errors.UserError`."""
        which = whole_number("--which", arguments.which, 1, 1 << 30)
        given = any(value is not None for value in (
            arguments.tag, arguments.requester, arguments.address, arguments.packet))
        return cls(_wanted(arguments), which, given)

    def find(self, capture: Path) -> list[Journey]:
        """All fitting TLPs of a capture."""
        return [journey for journey in journeys(sights(capture)) if self.fits(journey)]

    def one(self, found: list[Journey], name: str) -> Journey:
        """The chosen TLP among the TLPs found in capture ``name``."""
        if not found:
            raise UserError(f"no such TLP in {name!r}: `dxpu trace FILE` shows the first one of "
                            "all")
        if self.which > len(found):
            raise UserError(f"--which must be at most {len(found)}: there are no more such TLPs")
        return found[self.which - 1]


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


def _wanted(arguments: argparse.Namespace) -> Callable[[Journey], bool]:
    """A function from a journey to whether the options ask for the journey."""
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
