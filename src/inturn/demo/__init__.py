"""The demo on real data: a queue gets flights in disorder; Spark and a worker in process put them in order.

``inturn.demo.run.main`` is what ``inturn demo`` calls; ``inturn.demo.pipeline`` holds the pipeline to copy from.
"""
