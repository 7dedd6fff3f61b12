"""Values that everybody shares; imports nothing else of benchx."""
