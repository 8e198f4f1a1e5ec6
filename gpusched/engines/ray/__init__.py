"""The engine `ray`: a job is a driver of Ray, and each node an actor of it."""
