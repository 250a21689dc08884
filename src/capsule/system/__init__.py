"""The operating system, said once: processes, files, locks, signals. Imports the standard library and core, no more."""
