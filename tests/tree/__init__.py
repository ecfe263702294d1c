"""Tests of the source tree: imports, counts, documents, skipped tests."""
