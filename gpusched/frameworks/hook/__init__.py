"""What stands first on the PYTHONPATH of every replica: this directory is a path entry before it is a package."""
