"""What runs on an executor: the task of one slice of the groups."""
