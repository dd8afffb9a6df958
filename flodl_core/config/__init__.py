"""Settings: schema, load, explain."""
