"""Keeping layers of a model that exists already in float32."""
