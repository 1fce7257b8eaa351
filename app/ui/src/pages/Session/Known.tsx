/** What is known by now of each parameter: the figure, and its distribution beside that of before. */
import type { Posterior } from "../../api/types";
import { Marginal } from "../../charts/Marginal";
import { SelectField } from "../../components/Field";
import { Figure, Figures } from "../../components/Figure";
import { Loaded } from "../../components/Loaded";
import { Notice } from "../../components/Notice";
import { number } from "../../formats";
import type { Resource } from "../../hooks/useResource";

interface Props {
  posterior: Resource<Posterior>;
  prior: Posterior | undefined;
  /** What information is gathered about; others are nuisances. */
  targets: readonly string[];
  /** The parameter that is shown. */
  shown: string;
  onShow: (name: string) => void;
}

const MOST_FIGURES = 4;

export function Known({ posterior, prior, targets, shown, onShow }: Props) {
  return (
    <section className="stack" aria-label="What is known?">
      <h2>What is known?</h2>
      <Loaded of={posterior} lines={6}>
        {(found) => (
          <div className={posterior.isLoading ? "stack faded" : "stack"} aria-busy={posterior.isLoading}>
            <Figures>
              {targets.slice(0, MOST_FIGURES).map((name) => (
                <Figure key={name} value={number(found.posterior[name]?.mean)}>
                  {name}, sd {number(found.posterior[name]?.sd)}
                </Figure>
              ))}
            </Figures>
            {Object.keys(found.posterior).length > 1 && (
              <SelectField label="Shown" value={shown} onChange={(event) => onShow(event.target.value)}>
                {Object.keys(found.posterior).map((name) => (
                  <option key={name} value={name}>
                    {targets.includes(name) ? name : `${name} (a nuisance)`}
                  </option>
                ))}
              </SelectField>
            )}
            <Distribution posterior={found} prior={prior} name={shown} />
            {(found.edge_mass ?? 0) > 0.01 && (
              <Notice kind="warn">
                {number(100 * (found.edge_mass ?? 0))} % of what is believed lies at the edge of what the
                prior allows. Is it wide enough?
              </Notice>
            )}
          </div>
        )}
      </Loaded>
    </section>
  );
}

interface DistributionProps {
  posterior: Posterior;
  prior: Posterior | undefined;
  name: string;
}

function Distribution({ posterior, prior, name }: DistributionProps) {
  const marginal = posterior.marginals?.[name];
  if (marginal === undefined) return null;
  return (
    <>
      <Marginal
        name={name}
        marginal={marginal}
        prior={prior?.marginals?.[name]}
        isListed={posterior.method === "listed"}
      />
      <p className="quiet">
        95 % between <span className="figures">{number(marginal.hdi[0])}</span> and{" "}
        <span className="figures">{number(marginal.hdi[1])}</span>, the bar; dashed: before the first trial.
      </p>
    </>
  );
}
