"""Timers, cold caches, stopping rule, correctness gate, telemetry, roofline ceilings."""
