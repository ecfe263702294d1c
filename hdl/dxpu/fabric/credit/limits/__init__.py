"""Limits that peers grant, on their way to the accounts."""
