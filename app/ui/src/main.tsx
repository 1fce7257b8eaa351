import "@fontsource/ibm-plex-mono/latin-400.css";
import "@fontsource/ibm-plex-sans/latin-400.css";
import "@fontsource/ibm-plex-sans/latin-600.css";
import "@fontsource/source-serif-4/latin-600.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { askOtherTabs, takeKeyFromAddress } from "./api/credentials";
import "./base.css";
import { startTheme } from "./hooks/useTheme";
import "./tokens.css";

startTheme();
takeKeyFromAddress();
askOtherTabs();

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
