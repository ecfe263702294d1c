"""Tests of `dxpu trace`."""
