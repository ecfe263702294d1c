"""The dissector for Wireshark: parts in Lua, tables for these parts, and a profile."""
