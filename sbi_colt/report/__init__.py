"""From results to findings, sentences, figures, pages and files."""
