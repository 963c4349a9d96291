"""The demo on real data: a queue receives flights out of order; Spark and a worker in process apply them in order.

``inturn.demo.run.main`` is what ``inturn demo`` calls; ``inturn.demo.pipeline`` holds the pipeline to copy from.
"""
