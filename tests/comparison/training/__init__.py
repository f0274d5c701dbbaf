"""Tests of training in several precisions and judging it."""
