"""Training the same model in several precisions, and judging what comes of it."""
