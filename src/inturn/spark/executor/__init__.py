"""The code that runs on the executors: the task of one slice of the groups."""
