import { useState } from "react";
import { chooseTheme, themeChoice, type Choice } from "../../hooks/useTheme";

const CHOICES: { value: Choice; words: string }[] = [
  { value: "system", words: "As the system" },
  { value: "light", words: "Light" },
  { value: "dark", words: "Dark" },
];

export function ThemeChoice() {
  const [chosen, setChosen] = useState(themeChoice);
  return (
    <fieldset>
      <legend>Theme</legend>
      <div className="choices">
        {CHOICES.map(({ value, words }) => (
          <label key={value} className="choice">
            <input
              type="radio"
              name="theme"
              checked={chosen === value}
              onChange={() => {
                chooseTheme(value);
                setChosen(value);
              }}
            />
            {words}
          </label>
        ))}
      </div>
    </fieldset>
  );
}
