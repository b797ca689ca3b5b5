"""The recommended deployment for one consumer, one file each: a pure text of spec and result."""
