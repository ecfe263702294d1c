"""Benches of the whole system: demo, hot-plug, reboots, fuzz, sessions, containment."""
