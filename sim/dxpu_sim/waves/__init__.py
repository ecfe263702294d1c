"""GTKWave save files: rows for the stages of a read, names for the values of enums."""
