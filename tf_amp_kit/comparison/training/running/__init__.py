"""Training one model: in one precision, with one seed, perhaps in its own process."""
