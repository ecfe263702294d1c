"""Makes one file of the parts of the dissector."""

from importlib import resources

from .tables import lua_tables

__all__ = ["MARK", "PARTS", "plugin"]

#: How the file begins.
MARK = "-- DXF and PCIe TLPs in Wireshark; made by `dxpu wireshark`, not to be edited.\n"

#: The parts in Lua; each may use those before it, by their names.
PARTS = ("numbers", "tlp", "frame", "links", "fields", "show_tlp", "show_frame", "register")


def plugin() -> str:
    """The whole dissector: one chunk of Lua, for Lua 5.2 to 5.4."""
    parts = {"tables": lua_tables()}
    for name in PARTS:
        parts[name] = resources.files(__package__).joinpath(f"lua/{name}.lua").read_text("utf-8")
    text = [MARK]
    text += [f"local {name} = (function()\n{part}end)()\n" for name, part in parts.items()]
    return "\n".join(text)
