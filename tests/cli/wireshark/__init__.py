"""Tests of the dissector."""
