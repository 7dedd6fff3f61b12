"""A streaming server that keeps to a schedule and remembers when it really sent what."""
