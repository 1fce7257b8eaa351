"""The HTTP server: uvicorn's, which is not held up on its way out by those who wait for a job."""

import socket

import uvicorn


class Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn gives every request its time to end. One that waits for a job is answered with how it stands now, and
        an event stream is ended; both can be asked for again, of whoever takes over."""
        await self.config.app.state.watcher.stop()  # type: ignore[union-attr]
        await super().shutdown(sockets)
