"""Commands that run until they are stopped: configuration files, addresses, signals, logs, health and metrics."""
