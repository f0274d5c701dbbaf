"""Showing records: figures of what was measured, planned and compared."""
