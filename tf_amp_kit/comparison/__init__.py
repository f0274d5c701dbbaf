"""Decisions that are made by running a model in both precisions."""
