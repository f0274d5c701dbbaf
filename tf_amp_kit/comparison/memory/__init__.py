"""What a train step takes in memory, without running it."""
