"""Snake learnt by a genetic algorithm: genomes that actors play, and no gradients."""
