"""``dxpu spec``: table, traces, file, and one line for each mistake."""

import json
import re

import pytest

from dxpu_cli import main as cli
from dxpu_cli.commands import spec as command
from dxpu_model.spec import catalogue
from dxpu_model.spec.catalogue import Case
from dxpu_model.spec.session import Sessions


def test_table_and_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "cases", lambda size: [
        Case("session", "right", None, lambda: Sessions(tlps=(1, 0), offers=1)),
        Case("session", "wrong", "came out twice", lambda: Sessions("resumed"))])
    file = tmp_path / "spec.json"
    charts = tmp_path / "new" / "charts"
    assert cli.main(["spec", "--trace", "--json", str(file), "--draw", str(charts)]) == 0
    assert [path.name for path in charts.iterdir()] == ["wrong.svg"]
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"session +right +[\d,]+ +\d+ +holds +holds ", lines[1])
    assert re.match(r"session +wrong +[\d,]+ +\d+ +broken +broken ", lines[2])
    assert lines[-1].startswith("2 of 2 as expected")
    report = json.loads(file.read_text())
    assert report["ok"]
    right, wrong = report["cases"]
    assert right["found"] == "holds" and right["fault"] is None and not right["trace"]
    assert wrong["found"] == "broken" and "came out twice" in wrong["fault"]
    assert [line.split(maxsplit=1)[1] for line in lines if re.match(r" +\d+  ", line)] == (
        wrong["trace"])


@pytest.mark.parametrize("breaks,make,limits,outcome", [
    ("came out twice", Sessions, ["--states", "50"], "open"),  # no fault within the limit
    ("something else", lambda: Sessions("resumed"), [], "broken"),  # another fault than expected
    (None, lambda: Sessions("resumed"), [], "broken"),
    (None, Sessions, ["--depth", "3"], "open"),
])
def test_anything_unexpected_fails(breaks, make, limits, outcome, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "cases", lambda size: [Case("session", "x", breaks, make)])
    file = tmp_path / "spec.json"
    assert cli.main(["spec", "--json", str(file), *limits]) == 1
    report = json.loads(file.read_text())
    assert not report["ok"]
    assert report["cases"][0]["found"] == outcome
    assert "0 of 1 as expected" in capsys.readouterr().out


def test_list_names_every_case(capsys):
    assert cli.main(["spec", "--list"]) == 0
    out = capsys.readouterr().out
    for case in catalogue.cases():
        assert f"    {case.name}: " in out
    assert cli.main(["spec", "--list", "--model", "session"]) == 0
    assert set(re.findall(r"^(\w+):", capsys.readouterr().out, re.M)) == {"session"}


def test_a_file_that_cannot_be_written_gets_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "cases", lambda size: [
        Case("session", "wrong", "came out twice", lambda: Sessions("resumed"))])
    (tmp_path / "file").touch()
    assert cli.main(["spec", "--draw", str(tmp_path / "file" / "charts")]) == 2
    assert re.fullmatch(r"dxpu spec: error: cannot write '.*': Not a directory\n",
                        capsys.readouterr().err)


@pytest.mark.parametrize("options,message", [
    (["--model", "tcp"], "--model must be one of session, .*, not 'tcp'"),
    (["--states", "0"], "--states must be 1 or more, not 0"),
    (["--depth", "-1"], "--depth must be 1 or more, not -1"),
    (["--draw", "/dev/null"], "--draw must be a folder, but '/dev/null' is a file"),
    (["--json", "/nowhere/x.json"],
     "--json must be a file in a folder that is there, not '/nowhere/x.json'"),
])
def test_mistakes_get_one_line(options, message, capsys):
    assert cli.main(["spec", *options]) == 2
    assert re.fullmatch(rf"dxpu spec: error: {message}\n", capsys.readouterr().err)


def test_a_search_that_takes_long_says_so_off_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("dxpu_cli.progress.NOTICES", (0.0, 0.001))
    assert cli.main(["spec", "--model", "session"]) == 0
    rows = capsys.readouterr().out.splitlines()
    going = [row for row in rows if " ... " in row]
    assert going and all(float(row.split()[-1]) >= 0 for row in going)
    assert "\r" not in "".join(rows)
