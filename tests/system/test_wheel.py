"""The package as a user installs it: a wheel in an empty environment, used far from its tree."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dxpu_cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("hdl/dxpu", "hdl/dxpu_tools", "model/dxpu_model", "model/dxpu_performance",
            "sim/dxpu_sim", "host/dxpu_host", "boards/dxpu_boards", "manager/dxpu_manage",
            "manager/dxpu_manager", "cli/dxpu_cli")
#: What pip says if it cannot ask the registry.
UNREACHABLE = re.compile(r"Retrying|connection broken|Network is unreachable|name resolution")


def pip(*argv):
    return subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *argv],
                          capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree; hatchling is that of the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    built = pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    assert built.returncode == 0, built.stdout + built.stderr
    path, = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A function that runs a program of an environment with the wheel, and what it needs, alone."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    done = pip("--python", str(folder / "env/bin/python"), "install", "--retries", "1",
               "--timeout", "10", "-c", "requirements.txt", str(wheel))
    if done.returncode and UNREACHABLE.search(done.stdout + done.stderr):
        pytest.skip("wheel: no package registry")
    assert done.returncode == 0, done.stdout + done.stderr
    work = folder / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}

    def run(program, *argv):
        return subprocess.run([folder / "env/bin" / program, *argv], cwd=work, env=environment,
                              capture_output=True, text=True, timeout=600)

    run.folder = work
    return run


def test_the_wheel_has_every_file_of_the_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist()
                 if not name.partition("/")[0].endswith(".dist-info")}
    wanted = {path.relative_to(folder.parent).as_posix(): path.read_bytes()
              for folder in map(ROOT.joinpath, PACKAGES) for path in folder.rglob("*")
              if path.is_file() and "__pycache__" not in path.parts}
    assert sorted(found) == sorted(wanted)
    assert found == wanted
    # Not Python alone: programs for the guest, models of cells, the tracer.
    assert {Path(name).suffix for name in found} >= {".py", ".cpp", ".sv", ".v"}


def test_the_packages_are_those_of_the_wheel(installed):
    names = ", ".join(Path(package).name for package in PACKAGES)
    code = f"import {names}\nfor package in {names}: print(package.__path__[0])"
    run = installed("python", "-c", code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(f"{installed.folder.parent}/env/lib/") == len(PACKAGES)


def test_the_installed_command_writes_a_proxy(installed):
    run = installed("dxpu", "generate", "box", "-o", "box.v", "--width", "32", "--slots", "1",
                    "--paths", "1", "--peers", "1", "--streams", "1")
    assert run.returncode == 0, run.stdout + run.stderr
    text = (installed.folder / "box.v").read_text()
    assert re.search(r"^module dxpu_box\(", text, re.MULTILINE)
    assert text.count("\nendmodule\n") > 100 and len(text) > 1_000_000


def test_the_installed_command_makes_a_factory_record(installed):
    made = installed("dxpu", "factory", "one.bin", "--mac", "00:11:22:33:44:55", "--serial", "7")
    assert made.returncode == 0, made.stdout + made.stderr
    shown = installed("dxpu", "factory", "one.bin")
    assert shown.returncode == 0 and "00:11:22:33:44:55" in shown.stdout, shown.stderr


def test_help_of_every_command_needs_no_extra(installed):
    code = ("import contextlib\n"
            "from dxpu_cli import main as cli\n"
            "for command in cli.COMMANDS:\n"
            "    with contextlib.suppress(SystemExit):\n"
            "        cli.main([command, '--help'])\n")
    run = installed("python", "-c", code)
    assert run.returncode == 0 and not run.stderr, run.stderr
    for command in COMMANDS:
        assert f"usage: dxpu {command} " in run.stdout, command


def test_what_needs_an_extra_says_how_to_get_it(installed):
    run = installed("dxpu", "demo")
    assert run.returncode == 2 and run.stderr.count("\n") == 1
    python = installed.folder.parent / "env/bin/python"
    assert re.search(rf"cocotb is missing: {python} -m pip install .*\bcocotb==", run.stderr)
    assert not list(installed.folder.glob("build"))
