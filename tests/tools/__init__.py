"""Tests of ``dxpu_tools``."""
