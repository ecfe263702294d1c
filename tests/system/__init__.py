"""Tests of the whole system, and of the commands that simulate it."""
