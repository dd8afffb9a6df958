"""State document, logs, records, run directory, summaries."""
