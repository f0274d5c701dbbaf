"""What a comparison of precisions holds, and how it prints itself."""
