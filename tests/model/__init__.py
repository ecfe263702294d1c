"""Tests of the golden models, and of the executable specification."""
