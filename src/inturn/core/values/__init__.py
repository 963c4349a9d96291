"""The values that messages and states may hold: types, normal form, JSON, paths to fields."""
