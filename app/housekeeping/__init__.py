"""What reaches over all nouns: deleting, and sweeping files that nobody speaks of."""
