"""Puts the soft GPU, as a Verilog file known by its ports alone, below a stock Linux kernel.

``python run.py [icarus|verilator]``: the simulator must be in PATH. Prints what the guest says.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from cocotb_tools.runner import get_runner
from dxpu.endpoint.gpu import SoftGpu
from dxpu.proxy.verilog import PlainPorts
from dxpu_sim.linux.carrier import Carrier
from dxpu_sim.linux.carrier.complaints import complaints
from dxpu_tools.conversion import to_verilog

HERE = Path(__file__).resolve().parent
DEVICE = "/sys/bus/pci/devices/10000:01:00.0"
BAR = f"{DEVICE}/resource"
#: What is shown, and the lines of the guest's shell.
LINES = {
    "the kernel's view": "lspci -nn -s 10000::; lspci -vv -s 10000:01:00.0 2>/dev/null",
    "registers": f"setpci -s 10000:01:00.0 COMMAND=6 && gpu read {BAR}0 0 && "
                 f"gpu write {BAR}0 0x10 0x12345678 && gpu read {BAR}0 0x10",
    "video memory": f"gpu fill {BAR}2 0x100 256",
    "copies by the endpoint": f"gpu copy {BAR}0 4096",
    "a hot reset by the kernel": f"echo bus > {DEVICE}/reset_method && echo 1 > {DEVICE}/reset && "
                                 f"setpci -s 10000:01:00.0 COMMAND && gpu read {BAR}0 0x10",
}


def simulate(simulator: str, folder: Path, socket: Path) -> None:
    """Compile the endpoint, and run the bench until the carrier closes the socket."""
    runner = get_runner(simulator)
    runner.build(sources=[folder / "endpoint.v"], hdl_toplevel="endpoint",
                 build_dir=folder / simulator, timescale=("1ns", "1ps"),
                 build_args=["-Wno-fatal"] if simulator == "verilator" else [])
    runner.test(hdl_toplevel="endpoint", test_module="endpoint_bench", test_dir=HERE,
                build_dir=folder / simulator, results_xml=str(folder / "results.xml"),
                log_file=str(folder / "simulation.log"), extra_env={"CARRIER": str(socket)})


async def guest(carrier: Carrier) -> None:
    """Boot, and show what the guest says."""
    await carrier.attached(timeout_s=300)
    console = await carrier.boot()
    for what, line in LINES.items():
        print(f"== {what}\n{await console.say(line)}\n", flush=True)
    for complaint in complaints(await console.say("dmesg -r")):
        sys.exit(f"Linux complains: {complaint}")
    edge = carrier.edge
    print(f"{edge.tlps_sent} TLPs to the endpoint, {edge.tlps_received} from it, "
          f"{carrier.root.counts['bytes read']} bytes read and "
          f"{carrier.root.counts['bytes written']} written by it")


async def run(simulator: str, folder: Path) -> None:
    """Everything, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "endpoint.v").write_text(to_verilog(PlainPorts(SoftGpu(32)), name="endpoint"))
    with tempfile.TemporaryDirectory() as short:
        async with Carrier(Path(short) / "pcie", folder) as carrier:
            simulation = asyncio.create_task(
                asyncio.to_thread(simulate, simulator, folder, Path(short) / "pcie"))
            work = asyncio.create_task(guest(carrier))
            await asyncio.wait([simulation, work], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await simulation
            await work
        await simulation


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "icarus", Path.cwd() / "build"))
