"""Torch references and Triton kernels for KDA, MLA and their ancestors (no import of benchx)."""
