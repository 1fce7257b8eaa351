"""API keys: who may do what."""
