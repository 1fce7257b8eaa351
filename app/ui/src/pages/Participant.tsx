export default function Participant(props: { sessionId: string }) {
  return <h1>{Object.keys(props).length}</h1>;
}
