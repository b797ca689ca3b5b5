"""What we do: launches, the loop over them, and the record of what came out."""
