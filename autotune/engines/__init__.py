"""How a server is started, one file each; whatever goes wrong ends in a `LaunchError`."""
