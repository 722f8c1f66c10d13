"""The subcommands of `kpipe`, one module each."""
