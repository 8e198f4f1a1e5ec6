"""How a host joins a job of another host: keys, addresses, and the invitation of the learner."""
