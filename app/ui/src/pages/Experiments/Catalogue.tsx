/** Models that people use, each with a small picture and its source. */
import { useState } from "react";
import { CataloguePreview } from "../../charts/CataloguePreview";
import { Button } from "../../components/Button";
import { TextField } from "../../components/Field";
import { Loaded } from "../../components/Loaded";
import { useCatalogue } from "../../hooks/useCatalogue";

export function Catalogue({ onStart }: { onStart: (spec: unknown) => void }) {
  const catalogue = useCatalogue();
  const [wanted, setWanted] = useState("");
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  return (
    <section className="stack" aria-labelledby="catalogue">
      <h2 id="catalogue">Catalogue</h2>
      <Loaded of={catalogue} lines={8}>
        {(items) => {
          const found = items.filter(({ id, title, summary }) => {
            const text = `${id} ${title} ${summary}`.toLowerCase();
            return words.every((word) => text.includes(word));
          });
          return (
            <>
              <TextField
                label="Find a model"
                type="search"
                placeholder="dose, memory, threshold…"
                value={wanted}
                onChange={(event) => setWanted(event.target.value)}
              />
              <p className="quiet" role="status">
                {found.length} of {items.length}
              </p>
              <ul className="catalogue">
                {found.map(({ id, title, summary, reference, spec }) => (
                  <li key={id}>
                    <CataloguePreview id={id} title={title} />
                    <h3>{title}</h3>
                    <p>{summary}</p>
                    <p className="quiet">{reference}</p>
                    <Button
                      aria-label={`Start from this: ${title} (${id})`}
                      onClick={() => onStart({ name: title.slice(0, 200), ...spec })}
                    >
                      Start from this
                    </Button>
                  </li>
                ))}
              </ul>
            </>
          );
        }}
      </Loaded>
    </section>
  );
}
