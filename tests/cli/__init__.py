"""Tests of the commands: options, messages, files."""
