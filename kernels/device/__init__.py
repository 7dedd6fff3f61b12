"""Code that runs on the device: Triton functions only, launched by the modules one level up."""
