"""The command ``dxpu``: options, messages and progress; a module for each subcommand.

:mod:`.main` is the entry point, :mod:`.commands` holds the subcommands, :mod:`.console` the parts
of ``dxpu console``, :mod:`.pages` generators of parts of the documents.
"""
