"""One module for each group of commands; `cli` puts them together."""
