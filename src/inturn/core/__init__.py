"""The rules, pure: standard library only, no clock, no I/O, no randomness."""
