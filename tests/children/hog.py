"""Takes memory until the kernel kills it: 1 GiB at the most, touched page by page."""

held = [bytearray(b"x") * (4 << 20) for _ in range(256)]
