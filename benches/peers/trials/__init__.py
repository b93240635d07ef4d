"""Random networks, in loom and written down a second time in PyTorch."""
