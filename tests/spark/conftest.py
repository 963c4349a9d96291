"""Tests in this folder start a Spark session, the fixture ``spark`` of the root's conftest; its folders need none."""
