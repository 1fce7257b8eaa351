"""The interactive documentation at /docs: Swagger UI, served out of the package fastapi-swagger.

FastAPI's own page loads it from another host, which a laboratory's network may not reach, and starts it by a script
inside the page, which our Content-Security-Policy refuses: ours is a file."""

from html import escape

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

FILES = "/docs/files"
START = "/docs/start.js"
_PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{title}</title>
    <link rel="stylesheet" href="{root}{files}/swagger-ui.css">
    <link rel="icon" href="{root}{files}/favicon-32x32.png">
    <script defer src="{root}{files}/swagger-ui-bundle.js"></script>
    <script defer src="{root}{start}"></script>
  </head>
  <body>
    <div id="swagger-ui" data-href="{root}{schema}"></div>
  </body>
</html>
"""
# with a validatorUrl the page would send our schema's address to swagger.io
_SCRIPT = """"use strict";
const place = document.getElementById("swagger-ui");
SwaggerUIBundle({
  url: place.dataset.href,
  domNode: place,
  deepLinking: true,
  layout: "BaseLayout",
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
});
"""


def serve_docs(app: FastAPI) -> None:
    app.mount(FILES, StaticFiles(packages=[("fastapi_swagger", "resources")]))

    @app.get(START, include_in_schema=False)
    def get_start() -> Response:
        return Response(_SCRIPT, media_type="text/javascript")

    @app.get("/docs", include_in_schema=False)
    def get_docs(request: Request) -> HTMLResponse:
        root = escape(request.scope.get("root_path", ""))
        page = _PAGE.format(title=escape(app.title), root=root, files=FILES, start=START, schema=app.openapi_url)
        return HTMLResponse(page)
