"""Tutorials and how-tos: what they say to type works, and shows what they say."""

import re
import shutil
import subprocess

import pytest

from dxpu_cli.commands.generate import make
from dxpu_sim.ethernet.namespace import why_not
from dxpu_sim.waves.groups import WAY
from tests.support.pages import ROOT, added, copy_tree, environment, follow, pieces, steps, touched

from tests.tree import count

TUTORIAL, HOWTO = ROOT / "docs/tutorial", ROOT / "docs/howto"
#: What blocks say that are run here, and what the one begins with that is a piece of a file.
EXECUTED, QUOTED = "executed: tests/tree/test_tutorials.py", "class Platform"
CHANGES = sorted(path.stem for path in TUTORIAL.glob("first-change-*.diff"))


@pytest.fixture
def tree(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git: not installed")
    return copy_tree(tmp_path)


def test_each_first_change_has_its_diff():
    assert sorted(path.stem for path in TUTORIAL.glob("first-change-*.md")) == CHANGES
    assert sorted(count.CHANGES) == CHANGES


@pytest.mark.parametrize("name", CHANGES)
def test_a_first_change_works(name, tree):
    """Its commands are run in a copy of the tree, from the diff to undoing it."""
    before = {file: (tree / file).read_text() for file in touched(TUTORIAL / f"{name}.diff")
              if (tree / file).exists()}
    # Programs of docs/tutorial/first-change-frame.md need the change.
    apply, *rest, undo = steps(TUTORIAL / f"{name}.md", notes=(EXECUTED,))
    assert apply.block.text == f"git apply docs/tutorial/{name}.diff\n"
    assert undo.block.text == f"git apply -R docs/tutorial/{name}.diff\n"
    follow(apply, tree)
    assert any("pytest" in step.block.text for step in rest)
    for step in rest:
        follow(step, tree)
    follow(undo, tree)
    assert before == {file: (tree / file).read_text() for file in before}


@pytest.mark.parametrize("name", CHANGES)
def test_a_first_change_says_what_it_touches(name):
    """The page's table has the files of the diff, and its code is the diff's."""
    page, diff = TUTORIAL / f"{name}.md", TUTORIAL / f"{name}.diff"
    files = touched(diff)
    assert re.search(r"^Files touched: (\d+)\.$", page.read_text(), re.M)[1] == str(len(files))
    assert sorted(re.findall(r"^\| `(\S+/\S+)` \|", page.read_text(), re.M)) == sorted(files)
    new = added(diff)
    for piece in pieces(page, "diff"):
        missing = [line for line in piece.splitlines()
                   if line.startswith("+") and line[1:] not in new]
        assert not missing, f"{page.name}: not in the diff: {missing}"


def test_a_first_change_touches_few_files():
    for name, (_, most) in count.CHANGES.items():
        assert len(touched(TUTORIAL / f"{name}.diff")) <= most


@pytest.mark.parametrize("page", [
    "docs/howto/put-it-on-my-board.md", "docs/howto/debug-a-lost-tlp.md",
    "docs/howto/attach-your-pcie-core.md"])
def test_a_how_to_works(page, tree):
    """Its commands that need no hardware, and its programs."""
    for step in steps(ROOT / page, notes=(EXECUTED,)):
        if QUOTED not in step.block.text:
            follow(step, tree)


def test_a_how_to_quotes_the_platform_of_a_board():
    source = (ROOT / "boards/dxpu_boards/colorlight_5a_75b.py").read_text()
    quoted = [text for text in pieces(HOWTO / "put-it-on-my-board.md", "python") if QUOTED in text]
    assert len(quoted) == 1 and quoted[0] in source


@pytest.mark.parametrize("page", sorted([*HOWTO.glob("*.md"), *TUTORIAL.glob("*.md")]),
                         ids=lambda page: page.stem)
def test_registers_and_counters_that_a_page_names_exist(page):
    """But for what its own diff adds."""
    maps = [make("host", slots=1, paths=1, peers=1, streams=1).registers,
            make("box", slots=1, paths=1, peers=1, streams=1).registers]
    known = {placed.path for map in maps for _, block in map.blocks.values()
             for placed in block.placed}
    prefixes = ("pcie", "switch", "tracking", "fabric", "pool", "to_slots", "from_slots", "egress",
                "slot1", "mac0", "binding", "table", "tlp")
    text = page.read_text()
    diff = page.with_suffix(".diff")
    new = diff.read_text() if diff.exists() else ""
    for name in re.findall(rf"`((?:{'|'.join(prefixes)})\d?_[a-z_\d]+)`", text):
        assert name in known or name.rpartition("_")[2] in new, f"{page.name} names {name}"
    for name in re.findall(r"(?<![\w/-])(?:control|counters|table)\.([a-z][\w\[\].]*[\w\]])", text):
        name = name.replace("[n]", "[0]")
        if any(name.startswith(f"{register}.") for register in known):
            continue  # a field of a register
        assert name in known or name.rpartition("_")[2] in new, f"{page.name} names {name}"


def test_the_bench_in_verilog(tree):
    """Of the how-to: generated, compiled, run, and it prints what the page says."""
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus: no iverilog (Debian's package of that name)")
    for step in steps(ROOT / "docs/howto/use-the-verilog-in-your-bench.md", notes=(EXECUTED,)):
        follow(step, tree)


def test_the_bench_in_verilog_is_what_the_page_quotes():
    bench = (HOWTO / "bench/bench.v").read_text()
    quoted = pieces(HOWTO / "use-the-verilog-in-your-bench.md", "verilog")
    assert len(quoted) == 3
    for text in quoted:
        assert text in bench


def test_the_first_day_names_rows_of_the_wave():
    page = (TUTORIAL / "first-day.md").read_text()
    rows = re.findall(r"^\| `((?:host|box0): .*?)` \|", page, re.M)
    labels = [row.label for row in WAY]
    assert len(rows) > 10
    at = -1
    for row in rows:
        at = labels.index(row, at + 1)


@pytest.mark.long
def test_the_box_of_the_first_day(tree):
    """Its script runs, and shows what the page does, but for the counts: which frames get lost
    depends on the machine."""
    if reason := why_not():
        pytest.skip(reason)
    done = subprocess.run(["docs/tutorial/box.sh"], cwd=tree, env=environment(tree), text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    host, bindings, counters = [
        text for text in pieces(TUTORIAL / "first-day.md", "text") if text.startswith("$ ")]
    assert host in done.stdout and bindings in done.stdout
    shown = done.stdout[done.stdout.index(counters.splitlines()[0]):]
    for name in ("fabric_rx_tlps", "fabric_session_opened", "table_committed", "mac0_rx_good"):
        assert name in counters and name in shown
