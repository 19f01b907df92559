"""What every other folder builds on: files, options, output directories, tables, pictures, progress and provenance."""
