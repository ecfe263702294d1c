"""The profile of Wireshark: columns and colours for frames of DXF and TLPs."""

__all__ = ["COLOURS", "COLUMNS", "NAME", "files"]

#: What Wireshark's list of profiles shows.
NAME = "DXPU"

#: Heading, content and width in pixels of each column; ``%Cus`` is a field by its name in filters.
COLUMNS = (
    ("No.", "%m", 50), ("Time", "%t", 110), ("Where", "%Cus:frame.interface_name:0:R", 60),
    ("From", "%Cus:dxf.source_node:0:R", 55), ("Slot", "%Cus:dxf.source_slot:0:R", 35),
    ("To", "%Cus:dxf.destination_node:0:R", 55), ("Slot", "%Cus:dxf.destination_slot:0:R", 35),
    ("Session", "%Cus:dxf.session:0:R", 60), ("Life", "%Cus:dxf.life:0:R", 40),
    ("Response time", "%Cus:tlp.response_time:0:R", 105), ("Info", "%i", 700),
    ("Length", "%L", 55),
)

#: Name, filter, background and text of each colour; the first filter that fits counts.
COLOURS = (
    ("DXF: dropped by a receiver", "dxf.drop_cause", "a40000", "ffffff"),
    ("DXF: comment, such as an injected fault", "dxf && frame.comment", "f6d32d", "202020"),
    ("DXF: sent again", "dxf.retransmission || dxf.duplicate", "e9b96e", "202020"),
    ("DXF: frames missing before, or late", "dxf.gap || dxf.late || dxf.former", "fcaf3e",
     "202020"),
    ("TLP: malformed", 'tlp && _ws.expert.group == "Malformed"', "a40000", "ffffff"),
    ("TLP: not successful, or poisoned", "tlp.unsuccessful || tlp.poisoned", "ef8f8f", "202020"),
    ("DXF: session ends, or link is down", "dxf.fence || dxf.event.link_down || dxf.event.error",
     "cc6699", "ffffff"),
    ("DXF: session", "dxf.type == 0 || dxf.type == 1 || dxf.type == 11", "729fcf", "202020"),
    ("DXF: event of a slot", "dxf.type == 8", "ad7fa8", "ffffff"),
    ("DXF: management", "dxf.type == 10", "c4a000", "202020"),
    ("DXF: acknowledgement", "dxf.type == 5 || dxf.type == 6", "eeeeec", "606060"),
    ("TLP: completion", "tlp.status", "d5ecd2", "202020"),
    ("TLP: other than posted", "tlp.tag && !tlp.code", "daeeff", "202020"),
    ("TLP: posted", "tlp", "ffffff", "202020"),
)


def _colour(text: str) -> str:
    """Wireshark has 16 bits for each of red, green and blue."""
    return ",".join(str(int(text[n:n + 2], 16) * 257) for n in (0, 2, 4))


def files() -> dict[str, str]:
    """The files of the profile by their names."""
    columns = ",\n".join(f'\t"{heading}", "{content}"' for heading, content, _ in COLUMNS)
    widths = ", ".join(f"{content}, {width}" for _, content, width in COLUMNS)
    colours = "".join(f"@{name}@{test}@[{_colour(back)}][{_colour(front)}]\n"
                      for name, test, back, front in COLOURS)
    return {
        "preferences": f"gui.column.format: \n{columns}\n"
                       "nameres.mac_name: FALSE\neth.check_fcs: TRUE\n",
        "colorfilters": colours,
        "recent": "gui.time_format: RELATIVE\ngui.time_precision: NSEC\n"
                  f"column.width: {widths}\n",
    }
