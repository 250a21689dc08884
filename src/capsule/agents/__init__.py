"""Adapters of agent CLIs: one file each, named as in the settings.

A file here holds a class with the methods of `adapters.Agent`, and calls it `connect`. Most CLIs need only to say their
command line: `_cli.CliAgent` runs it, supervises it and reads what it left. Often no Python is needed at all: `command`
runs any CLI that the settings describe.
"""
