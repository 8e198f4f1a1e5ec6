"""The channel between hosts: which peer is let in, by which key, over which connection."""
