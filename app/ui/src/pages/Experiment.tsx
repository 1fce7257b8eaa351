export default function ExperimentPage(props: { experimentId: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
