"""C as text: literals, comments, indentation."""
