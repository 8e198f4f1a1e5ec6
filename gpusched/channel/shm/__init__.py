"""The channel within a host: arrays in shared memory, lent by a sender and mapped by a receiver."""
