"""Servers that benchx can start or attach to: one file each, found by name."""
