"""What is asked of the rest of specsim and answered with a tidy table: one module or package for each question."""
