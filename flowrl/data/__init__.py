"""Reading data: from a file, folder, name or function to checked rows of token ids."""
