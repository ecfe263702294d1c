"""Generator of FuseSoC: writes a proxy and the core file that brings it into the design."""

import shlex
import sys
from pathlib import Path

import yaml
from dxpu_cli.main import main

CORE = """CAPI=2:
name: {vlnv}
filesets:
  rtl:
    files: [{file}: {{file_type: verilogSource}}]
targets:
  default: {{filesets: [rtl]}}
"""


def generate(description: Path) -> int:
    """Do what FuseSoC's description of the job says, in the present folder."""
    job = yaml.safe_load(description.read_text())
    role = job["parameters"]["role"]
    file = f"dxpu_{role}.v"
    options = shlex.split(job["parameters"].get("options", ""))
    if status := main(["generate", role, "-o", file, *options]):
        return status
    Path(f"dxpu_{role}.core").write_text(CORE.format(vlnv=job["vlnv"], file=file))
    return 0


if __name__ == "__main__":
    sys.exit(generate(Path(sys.argv[1])))
