"""Errors of the switch: status bits, AER with header log, messages, containment (DPC)."""
