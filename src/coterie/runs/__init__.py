"""A run directory: spec, record, checkpoint, resume."""
