"""One file per operator: inputs, reference, FLOPs, bytes, KV bytes, and its backends."""
