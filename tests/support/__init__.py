"""Helpers of the tests: test-bench parts, golden comparisons, proofs, mutants, stand-ins."""
