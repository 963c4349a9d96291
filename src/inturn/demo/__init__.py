"""The main job on real data: flights are sent badly to a queue, and put in their turn on Spark and in process.

``inturn.demo.run.main`` is what ``inturn demo`` calls; ``inturn.demo.pipeline`` holds the pipeline to copy from.
"""
