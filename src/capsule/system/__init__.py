"""The operating system: processes, files, locks, signals. Imports the standard library and core, no more."""
