"""Snake with one thing changed at a time: which of its choices matter. Run `python -m bench.ablation`."""
