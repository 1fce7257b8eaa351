"""The interactive documentation at /docs: Swagger UI, served out of the package fastapi-swagger.

FastAPI's own page loads it from another host, which a laboratory's network may not reach."""

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

FILES = "/docs/files"


def serve_docs(app: FastAPI) -> None:
    app.mount(FILES, StaticFiles(packages=[("fastapi_swagger", "resources")]))

    @app.get("/docs", include_in_schema=False)
    def get_docs(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            swagger_js_url=f"{root}{FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{FILES}/swagger-ui.css",
            swagger_favicon_url=f"{root}{FILES}/favicon-32x32.png",
            swagger_ui_parameters={"validatorUrl": None},  # else the page sends our schema's address to swagger.io
        )
