"""What people read of a study: nothing is computed here that core/ does not know."""
