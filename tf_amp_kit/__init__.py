"""Mixed precision you can trust, for Keras 3 on TensorFlow."""
