"""Causes of NaN and infinity, by family: from a case to a sentence, or None."""
