"""The only door to private names of Keras and TensorFlow.

Each function says which private name it uses, and why no public one will do.
Where a new Keras moves a name, this is the only file to change.
"""

from __future__ import annotations
