"""DXPU in Amaranth: proxies that make PCIe devices behind an Ethernet part of a host.

Synthesizable components only, without imports of the other packages. :mod:`.proxy` holds the two
proxies; docs/architecture.md lists the rooms.
"""
