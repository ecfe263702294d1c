"""Boards, and the way from a design to a bitstream for them.

One file per board holds what is particular to it; :mod:`~dxpu_boards.registry` knows them all.
"""
