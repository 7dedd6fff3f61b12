"""Model descriptors and what follows from them."""
