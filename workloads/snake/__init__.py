"""Snake: a learner and many actors learn to play it by advantage actor-critic."""
