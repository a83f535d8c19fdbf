"""What is told of a running daemon: one stream of happenings, what is counted from it, and the views of people."""
