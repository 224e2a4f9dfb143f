"""The jars that Java programs of Weir's need: where they are, how they come there, how they are run.

`poms` holds a folder for each kind: a pom.xml, which says what is wanted, and jars.sha256, which says
what that is.
Of ours only modules without dependencies are imported: `make setup` fetches while Python's libraries are
still on their way.
"""
