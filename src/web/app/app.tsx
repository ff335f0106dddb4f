/** The whole page. */
export function App() {
  return <main>Turnwire</main>;
}
