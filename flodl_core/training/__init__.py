"""The job, its flat layout, and the training thread."""
