import { defineConfig } from "vite";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic" } },
  build: {
    outDir: "dist",
    target: "es2022",
    // ECharts is loaded when the first chart is drawn, and is as large as this by itself.
    chunkSizeWarningLimit: 800,
    // A font inside a style sheet would be a data: address, which the Content-Security-Policy refuses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // `npx vite` beside a running service: only for working on the page itself.
    proxy: Object.fromEntries(
      ["/v1", "/openapi.json", "/docs"].map((path) => [
        path,
        process.env.BENSEMBLE_URL ?? "http://127.0.0.1:8000",
      ]),
    ),
  },
});
