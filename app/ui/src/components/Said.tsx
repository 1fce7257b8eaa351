/** The service's own words, in which names of fields stand between backticks. */
export function Said({ text }: { text: string }) {
  return text.split("`").map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : part));
}
