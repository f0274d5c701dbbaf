"""Finding the fewest layers that have to stay in float32."""
