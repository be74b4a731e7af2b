"""FlintMQ inside other frameworks; docs/recipes.md explains these files, and tests run them."""
