"""From a plan to records: worker processes, time limits, interleaving, resume."""
