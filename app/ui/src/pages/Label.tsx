export default function Label(props: { projectId: string; roundId: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
