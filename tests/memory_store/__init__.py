"""The memory store: core's rules over plain lists, the oracle for the stores that users have.

The behaviour suite runs over it too, and ``tests/queues/test_oracle.py`` and ``tests/worker/test_pipelines_oracle.py``
give the same commands to it and to every other store.
"""
