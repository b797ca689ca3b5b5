"""What we know: values and arithmetic. Nothing here blocks, reads a clock, logs or rolls dice."""
