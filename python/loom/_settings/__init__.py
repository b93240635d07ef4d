"""How settings are checked, named in errors, and written as JSON."""
