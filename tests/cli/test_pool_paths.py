"""``dxpu pool paths`` and what other commands say of paths, of a manager as a process."""

import json

import pytest

from dxpu_cli import main as cli
from tests.support.manager_process import processes, tell, wait_for

A, B = "00010000.1", "00010000.2"
H0, H1 = "00000100", "00000101"


@pytest.fixture
def dxpu(tmp_path, capsys, monkeypatch):
    """Runs a command in this process, before nodes with two paths: status, output, errors."""
    with processes(tmp_path, "unix:m.sock", cards=2, paths=2) as (nodes, manager):
        monkeypatch.setenv("DXPU_MANAGER", manager.start())

        def run(*argv):
            capsys.readouterr()
            status = cli.main(list(argv))
            said = capsys.readouterr()
            return status, said.out, said.err

        def as_json(*argv):
            status, out, error = run(*argv, "--json")
            assert status == 0, error
            return json.loads(out)

        run.nodes, run.json = nodes, as_json
        wait_for(lambda: len(as_json("gpu", "list", "--state", "free")) == 4)
        wait_for(lambda: len(as_json("host", "list")) == 3)
        yield run


def test_paths_are_shown_and_balanced(dxpu):
    """A path dies, its GPU takes the other one, and takes it on when the path is back, until
    somebody balances the paths."""
    for host, gpu in ((H0, A), (H1, B)):
        assert dxpu("attach", host, gpu)[0] == 0
    status, out, _ = dxpu("pool", "paths")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["NODE", "NAME", "PATH", "LINK", "GPUS"],
        [H0, "0", "yes", "1"], [H0, "1", "yes", "0"], [H1, "0", "yes", "0"],
        [H1, "1", "yes", "1"], ["00000102", "0", "yes", "0"], ["00000102", "1", "yes", "0"],
        ["00010000", "0", "yes", "1"], ["00010000", "1", "yes", "1"],
        ["00010001", "0", "yes", "0"], ["00010001", "1", "yes", "0"]]
    assert dxpu.json("gpu", "show", B)["path"] == 1
    tell(dxpu.nodes, "unlink 10000 1")
    wait_for(lambda: dxpu.json("gpu", "show", B)["path"] == 0)
    assert "00010000: path 1 has no link\n" in dxpu("pool", "show")[1]
    assert dxpu.json("pool", "show")["dead_paths"] == [{"node": "00010000", "path": 1}]
    assert "paths      0 with 2 GPUs, 1 with 0 GPUs without a link\n" in dxpu(
        "box", "show", "00010000")[1]
    assert "paths      0 with 1 GPU, 1 with 0 GPUs\n" in dxpu("host", "show", H1)[1]
    wait_for(lambda: dxpu.json("gpu", "show", B)["state"] == "attached")
    assert dxpu("pool", "paths", "--balance")[1].endswith(
        "\n\nanother path is taken by: no GPU\n")
    tell(dxpu.nodes, "unlink 102 0")
    tell(dxpu.nodes, "unlink 10001 1")
    wait_for(lambda: len(dxpu.json("pool", "show")["dead_paths"]) == 3)
    status, _, error = dxpu("attach", "00000102", "00010001.1")
    assert status == 4
    assert error.endswith("no path from host 00000102 to box 00010001 has a link\n")
    generation = dxpu.json("gpu", "list")
    tell(dxpu.nodes, "link 10000 1")
    wait_for(lambda: len(dxpu.json("pool", "show")["dead_paths"]) == 2)
    moved = dxpu.json("pool", "paths", "--balance")["moved"]
    assert moved in ([A], [B])
    wait_for(lambda: {one["path"] for one in dxpu.json("gpu", "list")
                      if one["gpu"] in (A, B)} == {0, 1})
    assert [one["since"] for one in dxpu.json("gpu", "list")] == [
        one["since"] for one in generation]
    assert (tell(dxpu.nodes, "links 100"), tell(dxpu.nodes, "links 101")) == ("0", "0")
