import { defineConfig, mergeConfig } from "vitest/config";
import page from "./vite.config";

// Apart from vite.config.ts: the page is built where vitest is not installed.
export default mergeConfig(
  page,
  defineConfig({
    test: {
      environment: "happy-dom",
      include: ["src/**/*.test.{ts,tsx}"],
      // What a test reads as text; else style sheets are empty.
      css: { include: /\.css\?raw/ },
    },
  }),
);
