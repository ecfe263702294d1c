"""Commands and programs of the documents: they parse, and run where a test can run them."""

import ast
import importlib.util
import os
import re
import subprocess
import sys

import pytest

from dxpu_cli.main import parse
from dxpu_tools.collection import undisturbed
from tests.support.examples import ROOT, blocks, commands, inline_commands, pages

#: What a fence may say; CONTRIBUTING.md tells writers what each means.
KINDS = {"sh", "console", "python", "verilog", "diff", "text"}
#: Programs that a block of the kind ``sh`` may call beside dxpu, make and Python.
EVERYWHERE = {"cat", "cd", "cp", "diff", "git", "grep", "head", "ls", "mkdir", "sed", "tail"}

BLOCKS = [block for page in pages() for block in blocks(page) if not block.info.startswith("{")]
SHELL = [block for block in BLOCKS if block.info in ("sh", "console")]
PYTHON = [block for block in BLOCKS if block.info == "python"
          and not block.note.startswith("executed: ")]
TARGETS = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def by_place(block):
    return block.place


def check(words, place, *, anywhere):
    """One command; ``anywhere``: it must be one that every machine has."""
    program, arguments = os.path.basename(words[0]), words[1:]
    if program == "dxpu":
        if "--help" not in arguments:
            try:
                parse(arguments)
            except SystemExit as end:
                assert end.code == 0, f"{place}: {' '.join(words)}"
    elif program == "make":
        wanted = {word for word in arguments if "=" not in word and not word.startswith("-")}
        assert wanted <= TARGETS, f"{place}: make has no {wanted - TARGETS}"
    elif re.fullmatch(r"python[\d.]*", program):
        check_python(arguments, place)
    else:
        assert not anywhere or program in EVERYWHERE, (
            f"{place}: not every machine has {program}; a block with it is of the kind console")


def check_python(arguments, place):
    if arguments[:1] == ["-m"]:
        assert importlib.util.find_spec(arguments[1]), f"{place}: no module {arguments[1]}"
    elif arguments[:1] != ["-c"]:
        assert (ROOT / arguments[0]).exists(), f"{place}: no {arguments[0]}"
    for word in arguments:
        if word.startswith("tests/"):
            file, _, test = word.partition("::")
            assert (ROOT / file).exists(), f"{place}: no {file}"
            names = [node.name for node in undisturbed(ast.parse, (ROOT / file).read_text()).body
                     if isinstance(node, ast.FunctionDef)] if test else []
            assert not test or test.partition("[")[0] in names, f"{place}: no {word}"


@pytest.mark.parametrize("block", BLOCKS, ids=by_place)
def test_a_block_says_of_what_kind_it_is(block):
    assert block.info in KINDS, (
        f"{block.place}: {block.info!r} is none of {', '.join(sorted(KINDS))}; see CONTRIBUTING.md")


@pytest.mark.parametrize("block", SHELL, ids=by_place)
def test_commands_are_right(block):
    found = commands(block.text)
    assert found, block.place
    for words in found:
        check(words, block.place, anywhere=block.info == "sh")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_the_text_are_right(page, capsys):
    """They need not be whole: command and options are there."""
    for place, text in inline_commands(page):
        (program, command, *rest), = commands(text)
        if program == "make":
            check([program, command, *rest], place, anywhere=True)
            continue
        if command.startswith("-"):
            command, rest = "--help", [command, *rest]
        with pytest.raises(SystemExit) as end:
            parse([command, "--help"] if command != "--help" else [command])
        assert end.value.code == 0, f"{place}: {text}"
        known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", capsys.readouterr().out))
        for word in rest:
            option = word.partition("=")[0]
            assert not option.startswith("-") or option in known, f"{place}: {text}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.note.startswith("executed: ")
                                   or block.info == "verilog"], ids=by_place)
def test_blocks_that_a_test_runs_name_it(block):
    """The test reads the page."""
    test = ROOT / block.note.removeprefix("executed: ")
    assert test.is_file(), f"{block.place}: no comment 'executed: tests/...' above it"
    page = block.place.rpartition(":")[0]
    assert page in test.read_text() or "PAGE.read_text()" in test.read_text(), (
        f"{test} does not read {page}")


@pytest.mark.parametrize("block", [
    pytest.param(block, id=block.place, marks=[pytest.mark.long, pytest.mark.machine]
                 if block.note == "long" else []) for block in PYTHON])
def test_programs_run(block, tmp_path):
    run = subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True,
                         text=True)
    assert run.returncode == 0, f"{block.place}\n{run.stderr}"


def test_blocks_are_found():
    text = """Text

    indented

- item

      of the item

<!-- long -->

```python
x
```

```sh
a  # why
```
"""
    found = [(block.place, block.info, block.text, block.note)
             for block in blocks(ROOT / "page.md", text)]
    assert found == [("page.md:3", "", "    indented\n", ""),
                     ("page.md:11", "python", "x\n", "long"),
                     ("page.md:15", "sh", "a  # why\n", "")]


def test_commands_are_found():
    text = "A=1 sudo x 'y z' \\\n  --no  # why\n(cd a && b) | c; d\n# nothing\n"
    assert commands(text) == [["x", "y z", "--no"], ["cd", "a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize("line", [
    "dxpu generate host --wide 3", "dxpu nothing", "make nothing", "python -m nothing",
    "python nothing.py", "pytest nothing", ".venv/bin/python -m pytest tests/nothing.py",
    ".venv/bin/python -m pytest tests/tree/test_examples.py::test_nothing"])
def test_wrong_commands_are_seen(line):
    with pytest.raises(AssertionError, match="page.md:1"):
        check(*commands(line), "page.md:1", anywhere=True)
