"""Parts of the dissector that know nothing of Wireshark, in any version of Lua."""

import importlib
from importlib import resources
from typing import Any

from dxpu_cli.wireshark.tables import lua_tables

__all__ = ["PURE", "VERSIONS", "load"]

#: The parts that need no Wireshark, in the order of their use.
PURE = ("numbers", "tlp", "frame", "links")
#: Wireshark 4.0 has Lua 5.2, those from 4.4 on have 5.4; later versions have to come.
VERSIONS = ("lua52", "lua53", "lua54", "lua55")


def load(version: str, bitwise: str = "bit32 = bit32") -> Any:
    """The parts by their names. ``bitwise`` is Lua text that says which library of bits is
    there."""
    runtime = importlib.import_module(f"lupa.{version}").LuaRuntime(encoding="latin-1")
    parts = {"tables": lua_tables()}
    for name in PURE:
        parts[name] = resources.files("dxpu_cli.wireshark").joinpath(
            f"lua/{name}.lua").read_text("utf-8")
    text = [bitwise, *(f"local {name} = (function()\n{part}end)()" for name, part in parts.items()),
            "return {" + ", ".join(f"{name} = {name}" for name in PURE) + "}"]
    return runtime.execute("\n".join(text))
