"""Store tables: committed steps, file locations, reading and writing."""
