"""Forges: where a request to merge is opened and reviewed, each by its own program.

A forge is a row in a table (`presets.py`): the command that opens a request, and the questions that find out about it.
`cli.py` runs them; their answers become one struct (`core/request.py`).
"""
