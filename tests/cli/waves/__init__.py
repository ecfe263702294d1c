"""Tests of `dxpu waves`."""
