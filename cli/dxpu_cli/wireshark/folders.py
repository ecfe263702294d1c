"""Folders in which Wireshark looks for additions of a user."""

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["Folders", "folders"]


class Folders:
    """Folders of a user.

    Attributes
    ----------
    plugins : path
        Dissectors in Lua.
    profiles : path
        A folder for each profile.
    """

    def __init__(self, plugins: Path, settings: Path) -> None:
        self.plugins, self.profiles = plugins, settings / "profiles"


def folders() -> Folders:
    """Folders that the installed Wireshark names, else the usual ones."""
    said = {}
    if shutil.which("tshark"):
        run = subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True,
                             timeout=60, check=False)
        said = {name: path.strip() for name, colon, path in
                (line.partition(":") for line in run.stdout.splitlines()) if colon}
    home = Path.home()
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "wireshark"
    return Folders(
        Path(said.get("Personal Lua Plugins") or home / ".local/lib/wireshark/plugins"),
        Path(said.get("Personal configuration") or settings))
