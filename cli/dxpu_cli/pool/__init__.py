"""Commands to a running manager of a pool, and the command that runs one."""
