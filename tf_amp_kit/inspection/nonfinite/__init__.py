"""Where the first NaN or Inf of a train step was born."""
