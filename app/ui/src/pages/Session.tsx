export default function SessionPage(props: { sessionId: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
