"""Families of models of the Hugging Face Hub: how each is composed of loom's layers, and its tensors' names.

A family is a file with a table of what it is: the settings of config.json that it reads, its layers, where
their parameters stand in the files, and what is refused by name. `catalogue.py` lists the families;
`loom.models.from_hub` opens folders.
"""
