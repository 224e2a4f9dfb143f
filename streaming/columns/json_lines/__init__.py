"""JSON objects read as columns, thousands at once."""
