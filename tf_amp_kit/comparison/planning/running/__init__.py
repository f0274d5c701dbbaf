"""Really running a model in half precision, with some layers in float32."""
