"""``dxpu faults``: the campaign holds, and finds links that are wrong."""

import json
import shutil
from dataclasses import asdict

import pytest
from scapy.utils import RawPcapNgReader

from dxpu.fabric.credit.accounts import CreditAccounts
from dxpu_cli.main import main
from dxpu_model.wire import parse
from dxpu_sim.ethernet.capture import DROPPED
from dxpu_sim.fabric import cases
from dxpu_sim.fabric.fault_design import ENDS, FaultBench
from dxpu_sim.fabric.score import score
from dxpu_sim.run.runner import Design, simulate
from tests.support.link_mutants import Eager, Repetitive
from tests.support.tshark import Tshark


#: A case of each kind of fault, and two points of the goodput; `make test-long` runs all cases.
QUICK = ("clean", "loss 3.0%", "bursts", "doubled", "old frames", "flapping paths", "starving p",
         "handshake", "everything", "goodput 0.0%", "goodput 1.0%")
#: Of selective repeat, when a million take too long.
SHORT = [f"selective {name}" for name in (
    "loss 3.0%", "reordered", "flapping paths", "starving p", "everything")]


def campaign(tmp_path, capsys, tlps, chosen, *options, skipped=0):
    """Run the cases of names ``chosen``; returns the report, in which all must be well. As many as
    ``skipped`` may be too short to show anything."""
    file = tmp_path / "faults.json"
    status = main(["faults", "--tlps", str(tlps), "--json", str(file), "--out", str(tmp_path),
                   *options, *(word for name in chosen for word in ("--case", name))])
    print(capsys.readouterr().out)
    report = json.loads(file.read_text())
    assert report["problems"] == [] and report["ok"] and status == 0
    assert report["tlps"] >= tlps
    assert not any(report[name] for name in ("lost", "duplicated", "reordered", "changed"))
    assert set(report["cases"]) == set(chosen) and len(report["skipped"]) <= skipped
    return report


def test_campaign(tmp_path, capsys):
    """Between two ends, with links that go back N."""
    campaign(tmp_path, capsys, 4_000, QUICK, skipped=2)
    assert (tmp_path / "goodput.svg").stat().st_size and (tmp_path / "goodput.png").stat().st_size


@pytest.mark.long
def test_campaign_of_selective_repeat(tmp_path, capsys):
    campaign(tmp_path, capsys, 20_000, SHORT, "--arq", "selective", skipped=3)


@pytest.mark.long
@pytest.mark.parametrize("arq, tlps", [("go-back-n", 600_000), ("selective", 400_000)])
def test_long_campaign(tmp_path, arq, tlps, capsys):
    """All cases of both modes, and eight hosts on one box."""
    report = campaign(tmp_path, capsys, tlps, [case.name for case in cases.every(arq)],
                      "--arq", arq, skipped=3)
    assert len(report["incast"]) == (len(cases.incast()) if arq == "go-back-n" else 0)
    name = "goodput" if arq == "go-back-n" else f"goodput-{arq}"
    for suffix in ("svg", "png"):
        assert (tmp_path / f"{name}.{suffix}").stat().st_size


class Generous(CreditAccounts):
    """Mutant: there are credits for all."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.comb += self.sure.eq(1)
        return m


class Mutated(FaultBench):
    """The bench with another link in both engines, or other accounts."""

    def __init__(self, mutant):
        super().__init__()
        for engine in self._engines.values():
            if mutant == "Generous":
                engine._accounts.__class__ = Generous
            else:
                engine._link._arrivals.__class__ = {
                    "Eager": Eager, "Repetitive": Repetitive}[mutant].ARRIVALS


@pytest.mark.long
@pytest.mark.parametrize("mutant, case, seed, error", [
    # With seed 1 the eager link loses a BIND, and nobody sends a TLP.
    ("Eager", "loss 1.0%", 2, "lost"), ("Repetitive", "doubled", 1, "duplicated"),
    ("Generous", "starving p", 1, "")])
def test_campaign_finds(tmp_path, mutant, case, seed, error):
    case = next(c for c in cases.campaign() if c.name == case)
    folder = simulate(Design(Mutated, {"mutant": mutant}), "dxpu_sim.fabric.fault_bench",
                      env={"DXPU_FAULTS": json.dumps({**asdict(case), "tlps": 2000})},
                      folder=tmp_path / "run", seed=seed)
    judged = score(case, json.loads((folder / "result.json").read_text()))
    assert judged.problems
    if error:
        assert judged.errors[error]
    else:
        assert "without credits" in "".join(judged.problems)


@pytest.mark.long
def test_a_campaign_is_captured(tmp_path, capsys):
    """Every frame that a line has taken is in a file, whole and as it was sent, with a comment for
    each fault."""
    chosen = ["everything", "loss 3.0%"]
    report = campaign(tmp_path, capsys, 2_000, chosen, "--pcap", skipped=2)
    for name in chosen:
        counts = report["cases"][name]["counters"]
        packets = captured(tmp_path, name)
        for end, peer in zip(ENDS, reversed(ENDS), strict=True):
            comments = []
            for path in range(2):
                those = [meta for _, meta in packets
                         if meta.ifname.decode() == f"{end} path {path}"]
                assert len(those) == counts[f"to_{peer}_path{path}_frames"]
                comments += [b" ".join(meta.comments or ()).decode() for meta in those]

            def total(what, peer=peer, counts=counts):
                return sum(counts[f"to_{peer}_path{path}_{what}"] for path in range(2))

            assert sum(text == DROPPED for text in comments) == total("lost") > 0
            assert sum("comes twice" in text for text in comments) == total("twice")
            assert sum("comes late" in text for text in comments) == total("late")
            assert sum("changed" in text for text in comments) == total("changed")
        for data, meta in packets:
            frame = parse(data)
            assert frame.src_node == {"host": 1, "box": 0x101}[meta.ifname.decode().split()[0]]
    tshark = Tshark(tmp_path)
    shutil.copy(tmp_path / "captures" / "everything.pcapng", tshark.capture)
    rows = tshark.rows("dxf.type", "dxf.drop_cause", "frame.comment")
    assert len(rows) == len(captured(tmp_path, "everything"))
    assert all(kind and not cause for kind, cause, _ in rows)
    assert sum(comment == DROPPED for *_, comment in rows) > 0


@pytest.mark.long
def test_many_hosts_are_captured(tmp_path):
    """All frames that enter the switch, also if the run was too short for equal shares."""
    name, file = cases.incast()[0].name, tmp_path / "faults.json"
    status = main(["faults", "--tlps", "1000", "--case", name, "--pcap", "--json", str(file),
                   "--out", str(tmp_path)])
    counts = json.loads(file.read_text())["cases"][name]["counters"]
    packets = captured(tmp_path / "failed" if status else tmp_path, name)
    frames = [parse(data, with_fcs=True) for data, _ in packets]
    assert sum(frame.src_node == 0x101 for frame in frames) == counts["box_port_rx_frames"] > 0
    assert len(frames) == counts["box_port_rx_frames"] + counts["host_port_rx_frames"]
    assert {meta.ifname.decode() for _, meta in packets} == {
        "box", *(f"host{n}" for n in range(cases.incast()[0].hosts))}


def captured(folder, name):
    """Packets of a case's capture, in the order of time."""
    file = folder / "captures" / f"{name.replace(' ', '-').replace('%', '')}.pcapng"
    with RawPcapNgReader(str(file)) as reader:
        packets = list(reader)
    times = [meta.tshigh << 32 | meta.tslow for _, meta in packets]
    assert times == sorted(times)
    return packets
