"""Pure numpy: robust summaries and order-statistic intervals."""
