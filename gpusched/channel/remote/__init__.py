"""The channel between hosts: who is let in, by which key, over which connection."""
