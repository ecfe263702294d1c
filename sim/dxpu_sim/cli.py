"""The command ``dxpu``: one subcommand per job, each imported only when it is asked for."""
