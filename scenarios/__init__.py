"""The scenarios that ship with benchx, as package data."""
