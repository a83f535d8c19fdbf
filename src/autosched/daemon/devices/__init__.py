"""Whether devices and what is measured on them can be trusted, and what follows."""
