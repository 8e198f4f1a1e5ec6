"""The control link between command line and daemon: typed messages over a ZeroMQ ipc socket in a private directory."""
