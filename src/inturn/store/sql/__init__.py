"""Code that both SQL databases share: pipelines and the log of a queue, over the statements of each."""
