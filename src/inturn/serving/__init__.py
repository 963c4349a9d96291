"""How a command that runs until it is stopped reads its configuration, stops, logs and reports its health."""
