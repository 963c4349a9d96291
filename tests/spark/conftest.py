"""Tests in this folder start a Spark session; they share one, the fixture ``spark`` of the root's conftest."""
