"""Subcommands of ``dxpu``, a module each, with ``add_arguments(parser)`` and ``run(arguments)``."""
