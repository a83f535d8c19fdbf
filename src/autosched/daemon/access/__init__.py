"""Authentication, admission control and audit."""
