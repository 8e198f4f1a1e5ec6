"""What `gpusched doctor` knows: facts are collected within a deadline, and pure checks make findings of them."""
