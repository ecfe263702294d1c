"""tshark with the dissector: captures made of bytes, and what is seen in them."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from dxpu_cli.wireshark.plugin import plugin
from dxpu_sim.ethernet.pcap import TLP, PcapWriter

__all__ = ["Tshark"]


class Tshark:
    """Writes captures into a folder, and reads them; skips the test without tshark."""

    def __init__(self, folder: Path):
        if not shutil.which("tshark"):
            pytest.skip("tshark: no tshark (Debian's package of that name)")
        self.script, self.capture = folder / "dxpu.lua", folder / "capture.pcapng"
        self.script.write_text(plugin())

    def frames(self, frames: Iterable[bytes], *, fcs: bool = False,
               damaged: Iterable[bytes] = ()) -> "Tshark":
        """A capture of frames, a microsecond after each other; then those that are known to be
        damaged."""
        with PcapWriter(self.capture, fcs=fcs) as writer:
            port = writer.interface("port0")
            for number, frame in enumerate(frames):
                writer.write(port, 1000 * number, frame)
            for frame in damaged:
                writer.write(port, 10**9, frame, damaged=True)
        return self

    def tlps(self, tlps: Iterable[tuple[bytes, bool | None]]) -> "Tshark":
        """A capture of TLPs, each with whether it is inbound, a microsecond after each other."""
        with PcapWriter(self.capture) as writer:
            port = writer.interface("gpu0", TLP)
            for number, (tlp, inbound) in enumerate(tlps):
                writer.write(port, 1000 * number, tlp, inbound=inbound)
        return self

    def run(self, *options: str) -> str:
        """What tshark prints."""
        run = subprocess.run(
            ["tshark", "-X", f"lua_script:{self.script}", "-r", str(self.capture), *options],
            capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stderr
        assert "Lua" not in run.stderr, run.stderr
        return run.stdout

    def rows(self, *names: str, options: tuple[str, ...] = ()) -> list[list[str]]:
        """The values of fields in each packet; several of a field are joined by commas."""
        fields = [option for name in names for option in ("-e", name)]
        out = self.run(*options, "-T", "fields", "-E", "separator=/t", *fields)
        return [line.split("\t") for line in out.splitlines()]

    def details(self) -> str:
        """All packets with all they have; no error of Lua is among it."""
        text = self.run("-V")
        errors = [line for line in text.splitlines() if "Lua Error" in line]
        assert not errors, errors[:3]
        return text
