"""Generators of parts of the pages in ``docs``, which tests compare with the pages."""
