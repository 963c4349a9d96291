"""The code that runs on the driver: steps, streams, inspection of a store."""
