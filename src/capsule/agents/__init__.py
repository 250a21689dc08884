"""Who does the work. One file per agent CLI; the file's name is its name in the settings.

Each file holds a class with the methods of `adapters.Agent`, which `connect(options)` makes. Most CLIs only need to
say their command line: `_cli.CliAgent` runs it, supervises it and reads what it left. Often no Python is needed at
all: `command` runs any CLI that the settings describe.
"""
