"""Finding benches: by name, by file, among the files of a folder; and writing a new one."""
