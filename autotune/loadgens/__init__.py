"""What sends a pass and times it, one file each: it must never be what is measured."""
