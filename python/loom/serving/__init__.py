"""Networks that answer over HTTP."""
