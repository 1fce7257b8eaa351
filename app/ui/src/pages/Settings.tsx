/** How this browser shows the page, who labels, and who else may use the service. */
import { About } from "./Settings/About";
import { Keys } from "./Settings/Keys";
import { LabellingChoices } from "./Settings/LabellingChoices";
import { SignOut } from "./Settings/SignOut";
import { ThemeChoice } from "./Settings/ThemeChoice";
import "./Settings/Settings.css";

export default function Settings() {
  return (
    <div className="settings">
      <h1>Settings</h1>
      <section aria-labelledby="look">
        <h2 id="look">Look</h2>
        <ThemeChoice />
      </section>
      <section aria-labelledby="labelling">
        <h2 id="labelling">Labelling</h2>
        <LabellingChoices />
      </section>
      <section aria-labelledby="keys">
        <h2 id="keys">API keys</h2>
        <Keys />
      </section>
      <section aria-labelledby="about">
        <h2 id="about">About</h2>
        <About />
      </section>
      <section aria-labelledby="leave">
        <h2 id="leave">Sign out</h2>
        <SignOut />
      </section>
    </div>
  );
}
