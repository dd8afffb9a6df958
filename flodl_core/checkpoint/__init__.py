"""The consensus bundle on disk."""
