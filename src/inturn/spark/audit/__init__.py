"""What is true of a log's order, before any pipeline: ``audit`` counts what is wrong and says which grade fits."""
