"""Each rule of docs/reference/tlp-checks.md is checked by whom it says, and by nobody else."""

import re
from pathlib import Path

import pytest

from dxpu.endpoint.intake import Intake
from dxpu.proxy.slot_parser import SlotParser
from dxpu.tlp.ingress import Ingress
from dxpu.tlp.types import Malformed, TlpClass
from dxpu_model import tlp as golden
from tests.support.testbench import Packet, drive_packets, simulate

PAGE = Path(__file__).parents[3] / "docs/reference/tlp-checks.md"
COLUMNS = ["rule", "section", "who checks", "breaks it", "cause", "upstream", "downstream", "GPU"]
MAX_PAYLOAD = 128


def table():
    """Rows of the table, by column, with the TLP as bytes."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in PAGE.read_text().splitlines() if line.startswith("|")]
    start = lines.index(COLUMNS)
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in lines[start + 2:]]
    for row in rows:
        example = re.fullmatch(r"`([0-9a-f ]+?)(?: \+ (\d+) bytes)?`", row["breaks it"])
        assert example, row
        row["raw"] = bytes.fromhex(example[1]) + bytes(int(example[2] or 0))
    return rows


def verdicts(dut, inputs, counted, setup=()):
    """Send packets one at a time; whether each made the pulse ``counted``."""
    found = []

    async def send(ctx):
        for port, value in setup:
            ctx.set(port, value)
        for stream, packet in inputs:
            for o in (dut.info, dut.beats) if isinstance(dut, Ingress) else (dut.o,):
                ctx.set(o.ready, 1)
            pulses = []
            await drive_packets(stream, [packet])(ctx)
            for _ in range(60):
                *_, pulse = await ctx.tick().sample(counted)
                pulses.append(pulse)
            assert sum(pulses) <= 1
            found.append("Malformed" if sum(pulses) else "passes")

    simulate(dut, send, deadline=200 * len(inputs))
    return found


def test_the_table_has_every_cause_once_and_more():
    causes = {row["cause"] for row in table()}
    assert causes == {cause.name for cause in Malformed if cause} | {""}
    for row in table():
        assert row["raw"] and len(row["raw"]) % 4 == 0
        ports = {row[port] for port in COLUMNS[5:]}
        assert ports <= {"Malformed", "passes"} and ("Malformed" in ports) == bool(row["cause"])
        # Nobody's rule is checked by nobody, and what all must check is checked by all.
        if row["who checks"] in ("nobody", "requesters"):
            assert ports == {"passes"}
        if row["who checks"] == "receivers must":
            assert ports == {"Malformed"}
        if row["who checks"] == "completers must":
            assert [row[port] for port in COLUMNS[5:]] == ["passes", "passes", "Malformed"]


@pytest.mark.parametrize("row", table(), ids=lambda row: row["rule"][:40])
def test_the_golden_model_agrees(row):
    cause = Malformed[row["cause"]] if row["cause"] else Malformed.NONE
    for port, completer in (("upstream", False), ("downstream", False), ("GPU", True)):
        found = golden.malformed(row["raw"], MAX_PAYLOAD, completer=completer)
        if row[port] == "Malformed" and not (completer and "where none" in row["rule"]):
            assert found is cause
        else:
            assert found is Malformed.NONE


def test_the_upstream_port_agrees():
    rows, dut = table(), Ingress(64, depth=1024)
    found = verdicts(dut, [(dut.i, Packet(row["raw"])) for row in rows], dut.stat_malformed,
                     [(dut.max_payload, 0)])
    assert found == [row["upstream"] for row in rows]


def test_the_downstream_ports_agree():
    rows, dut = table(), SlotParser(64, rows=1)
    found = verdicts(dut, [(dut.i, Packet(row["raw"], dict(row=0))) for row in rows],
                     dut.stat_malformed, [(dut.max_payloads[0], 0)])
    assert found == [row["downstream"] for row in rows]


def test_the_soft_gpu_agrees():
    rows, dut = table(), Intake(64)
    streams = {TlpClass.P: dut.p, TlpClass.NP: dut.np, TlpClass.CPL: dut.cpl}
    inputs = []
    for row in rows:
        # Of what has no whole header, or none that is defined, the class does not matter.
        raw = row["raw"]
        cut = row["cause"] == "TRUNCATED" or golden.malformed(raw) is Malformed.PREFIX
        inputs.append((streams[TlpClass.P if cut else golden.classify(raw).cls], Packet(raw)))
    found = verdicts(dut, inputs, dut.stat_malformed, [(dut.max_payload, 0), (dut.answered, 1)])
    assert found == [row["GPU"] for row in rows]
