"""The audit of a log's order before any pipeline: ``audit`` counts the faults and proposes a grade of order."""
