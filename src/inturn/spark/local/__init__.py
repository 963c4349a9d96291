"""Spark on this machine, for the command line and the demo: a session, a Java, files, progress."""
