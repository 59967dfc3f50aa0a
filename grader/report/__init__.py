"""Reports: pure functions from the result tree to what people and tools read."""
