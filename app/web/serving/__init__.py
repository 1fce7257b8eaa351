"""What stands around the routes: the server, its logs and caps, the checks before a request, health, /docs, the page.

Only `main` and `cli` use it.
"""
