"""Pinning what half precision makes fail, while a model is built, called or trained."""
