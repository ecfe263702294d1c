"""Tests of the boards and of the way to their bitstreams."""
