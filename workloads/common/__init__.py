"""What several workloads share. It knows none of them."""
