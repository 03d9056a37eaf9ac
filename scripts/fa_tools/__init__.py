"""The modules behind scripts/fa."""
