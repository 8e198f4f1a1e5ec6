"""gpusched on a real GPU: `scripts/verify-gpu` runs this, and docs/gpu-verification.md is what it writes."""
