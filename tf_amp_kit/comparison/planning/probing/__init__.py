"""What the rounding of each unit comes to, from a pass with half-precision shadows."""
