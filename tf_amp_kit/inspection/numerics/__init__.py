"""Exact statistics of float32 arrays, judged against the half formats."""
