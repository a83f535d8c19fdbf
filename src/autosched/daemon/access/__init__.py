"""Who may come in, from where, as whom; how much may wait; who did what."""
