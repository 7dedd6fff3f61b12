"""Pure numpy: robust summaries and bootstrap intervals."""
