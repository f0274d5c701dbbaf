"""The plan itself: what it holds, says, and does to a model."""
