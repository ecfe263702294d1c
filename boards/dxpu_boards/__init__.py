"""Boards, and the way from a design to a bitstream.

One file per board describes the board; :mod:`~dxpu_boards.registry` lists all boards.
"""
