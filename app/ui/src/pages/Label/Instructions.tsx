/** What the project asks of annotators: open until somebody has folded it away. */
import { useState } from "react";

const NAME = "bensemble.instructions";

export function Instructions({ text }: { text: string | null }) {
  const [isOpen, setOpen] = useState(() => localStorage.getItem(NAME) !== "closed");
  if (text === null || text.trim() === "") return null;
  return (
    <details
      className="instructions"
      open={isOpen}
      onToggle={({ currentTarget }) => {
        setOpen(currentTarget.open);
        localStorage.setItem(NAME, currentTarget.open ? "open" : "closed");
      }}
    >
      <summary>Instructions</summary>
      <p dir="auto">{text}</p>
    </details>
  );
}
