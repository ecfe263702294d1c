"""Tests of the software host ``dxpu_host``."""
