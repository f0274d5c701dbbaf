"""Showing records: figures of what `tf_amp_kit.inspection` measured."""
