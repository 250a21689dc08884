"""Do things with a project, by functions on plain values: commands, screens and scripts call the same ones.

Commands turn words into these values and print what comes back. Nothing here reads arguments or prints.
"""
