"""The rules of a pipeline: its definition, its orders, the timeline of a group and decisions about it."""
