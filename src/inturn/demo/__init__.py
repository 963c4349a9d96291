"""The main job on real data: two weeks of flights through a bad network, put in their turn on Spark.

``inturn.demo.run.main`` is what ``inturn demo`` calls; ``inturn.demo.pipeline`` holds the pipeline to copy from.
"""
