"""A user's training script under mixed precision, unchanged."""
