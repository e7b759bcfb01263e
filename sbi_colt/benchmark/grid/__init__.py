"""The grid of cells, and the runner that fills a CSV file."""
