"""Where NaN and infinity come from: the first operation that makes them, and why."""
