export default function New() {
  return <h1>New</h1>;
}
