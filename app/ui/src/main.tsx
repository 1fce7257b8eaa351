import "@fontsource/ibm-plex-mono/latin-400.css";
import "@fontsource/ibm-plex-sans/latin-400.css";
import "@fontsource/ibm-plex-sans/latin-600.css";
import "@fontsource/source-serif-4/latin-600.css";
import "./tokens.css";
// Before the components, whose own shapes win over these.
import "./base.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { askOtherTabs, takeKeyFromAddress } from "./api/credentials";
import { startTheme } from "./hooks/useTheme";

startTheme();
takeKeyFromAddress();
// A link that is pasted into an open tab changes the fragment alone.
addEventListener("hashchange", takeKeyFromAddress);
askOtherTabs();

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
