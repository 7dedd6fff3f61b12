"""Every built-in operator and backend, by explicit list; importing this module registers them."""

from __future__ import annotations
