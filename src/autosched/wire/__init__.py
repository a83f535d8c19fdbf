"""Two ends and what goes between them: addresses, messages as bytes, connections, keys, files. `protocol` says what."""
