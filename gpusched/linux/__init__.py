"""What Linux does and Python does not wrap: files in others' directories, locks, processes, limits, lack of memory."""
