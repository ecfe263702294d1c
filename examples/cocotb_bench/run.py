"""Generates the proxy, compiles it below the top of ``../verilog_top``, and runs the bench.

``python run.py [icarus|verilator] [FILE]``: the simulator must be in PATH; all frames and TLPs are
captured in the file.
"""

import sys
from pathlib import Path

from cocotb_tools.runner import get_runner
from dxpu_cli.main import main

HERE = Path(__file__).resolve().parent
OPTIONS = "--width 32 --slots 1 --paths 1 --peers 1 --streams 1"


def run(simulator: str, folder: Path, capture: str = "") -> None:
    """Everything, in a folder; ends the program if a test fails."""
    folder.mkdir(parents=True, exist_ok=True)
    proxy = folder / "dxpu_host.v"
    if not proxy.exists() and main(["generate", "host", "-o", str(proxy), *OPTIONS.split()]):
        sys.exit("no proxy")
    runner = get_runner(simulator)
    runner.build(sources=[HERE.parent / "verilog_top/host_top.v", proxy], hdl_toplevel="host_top",
                 parameters={"QUIET": 16}, build_dir=folder / simulator, timescale=("1ns", "1ps"),
                 build_args=["-Wno-fatal"] if simulator == "verilator" else [])
    runner.test(hdl_toplevel="host_top", test_module="host_bench", test_dir=HERE,
                build_dir=folder / simulator, results_xml=str(folder / "results.xml"),
                extra_env={"PCAP": str(Path(capture).resolve())} if capture else {})


if __name__ == "__main__":
    run(sys.argv[1] if len(sys.argv) > 1 else "icarus", Path.cwd() / "build", *sys.argv[2:3])
