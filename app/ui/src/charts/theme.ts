/** The page's colours and type for charts, read from tokens.css, so that there is one list of them. */
import type { EChartsCoreOption } from "echarts/core";

export interface Colours {
  paper: string;
  raised: string;
  rule: string;
  ink: string;
  quiet: string;
  accent: string;
  series: string[];
  ramp: string[];
}

export type Option = EChartsCoreOption;
export const MONO = '"IBM Plex Mono", monospace';
export const SANS = '"IBM Plex Sans", sans-serif';
/** One for each series, beside its colour: nothing is told by colour alone. */
export const SYMBOLS = ["circle", "emptyRect", "triangle", "emptyDiamond", "path://M0,0L10,10M10,0L0,10"];

export function coloursOf(element: Element): Colours {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: token("paper"),
    raised: token("raised"),
    rule: token("rule"),
    ink: token("ink"),
    quiet: token("quiet"),
    accent: token("accent"),
    series: [1, 2, 3, 4, 5].map((i) => token(`series-${i}`)),
    ramp: ["low", "middle", "high"].map((name) => token(`ramp-${name}`)),
  };
}

/** The colour with so much of it, 0 to 1; tokens are #rrggbb. */
export function faint(colour: string, alpha: number): string {
  return (
    colour +
    Math.round(255 * alpha)
      .toString(16)
      .padStart(2, "0")
  );
}

/** An axis in the page's style; spread, and say `name`, `min` and so on after it. */
export function axis(colours: Colours): Record<string, unknown> {
  return {
    nameTextStyle: { color: colours.quiet, fontFamily: SANS, fontSize: 13 },
    axisLine: { show: true, lineStyle: { color: colours.rule } },
    axisTick: { show: false },
    axisLabel: { color: colours.quiet, fontFamily: MONO, fontSize: 13 },
    splitLine: { lineStyle: { color: colours.rule, opacity: 0.6 } },
  };
}

/** What every chart has: no animation, tooltips drawn on the canvas (as HTML they would break the CSP), a description. */
export function common(colours: Colours, label: string): Option {
  return {
    animation: false,
    aria: { enabled: true, label: { description: label } },
    textStyle: { fontFamily: SANS, fontSize: 13, color: colours.ink },
    tooltip: {
      renderMode: "richText",
      confine: true,
      backgroundColor: colours.raised,
      borderColor: colours.rule,
      textStyle: { color: colours.ink, fontFamily: SANS, fontSize: 13 },
    },
  };
}
