"""Tests, in folders that mirror the packages; :mod:`.support` holds their helpers.

:mod:`.system` tests the whole system, :mod:`.tree` the source tree itself. docs/testplan.md lists
what must hold, and the tests for it.
"""
