"""The operations on a project as functions on plain values: commands, screens and scripts call the same ones.

Commands turn words into these values and print the results. Nothing here reads arguments or prints.
"""
