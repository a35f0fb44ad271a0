"""The site: pages that are made from the code, tutorials as pages, and hooks of mkdocs."""
