"""What users see of a program: pages, pictures and terminal tables."""
