"""Tools of the project that the Makefile and the tests call."""
