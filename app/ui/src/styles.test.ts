/** Style sheets of pages stay once they are loaded: none may style what another page draws. */
import { expect, test } from "vitest";

const sheets = import.meta.glob<string>(["./**/*.css", "!./base.css", "!./tokens.css"], {
  query: "?raw",
  import: "default",
  eager: true,
});
const components = import.meta.glob<string>("./**/*.tsx", { query: "?raw", import: "default", eager: true });

/** "./pages/Label/Bench.tsx" and "../../components/Item" are "./components/Item". */
function resolve(from: string, path: string): string {
  const parts = from.split("/").slice(0, -1);
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}

function importsOf(file: string): string[] {
  const found = [...(components[file] ?? "").matchAll(/(?:from|import) "(\.[^"]+)"/g)];
  return found
    .map(([, path = ""]) => resolve(file, path))
    .map((path) => (components[`${path}.tsx`] ? `${path}.tsx` : path));
}

/** Everything that comes with a component. */
function closure(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  importsOf(file).forEach((each) => closure(each, seen));
  return seen;
}

function classesOf(file: string): Set<string> {
  const found = [...(components[file] ?? "").matchAll(/className=(?:"([^"]*)"|\{([^}]*)\})/g)];
  return new Set(
    found.flatMap(([, plain, code]) =>
      plain !== undefined
        ? plain.split(" ")
        : [...(code ?? "").matchAll(/["`]([^"`]*)["`]/g)].flatMap(([, text = ""]) => text.split(/[^\w-]+/)),
    ),
  );
}

/** Classes that rules of a sheet begin with: they style whatever has them. */
function openClasses(css: string): Set<string> {
  const selectors = [...css.replace(/\/\*[^]*?\*\//g, "").matchAll(/([^{}]+)\{/g)];
  return new Set(
    selectors.flatMap(([, list = ""]) =>
      list.split(",").flatMap((one) => /^\s*\.([\w-]+)(?![\w.-])/.exec(one)?.[1] ?? []),
    ),
  );
}

test("a class is styled by what comes with the component that has it", () => {
  const closures = new Map(Object.keys(components).map((file) => [file, closure(file)]));
  const strangers = Object.entries(sheets).flatMap(([sheet, css]) => {
    const importers = Object.keys(components).filter((file) => importsOf(file).includes(sheet));
    return [...openClasses(css)].flatMap((name) =>
      Object.keys(components)
        .filter((file) => classesOf(file).has(name))
        .filter(
          (file) =>
            !closures.get(file)?.has(sheet) && !importers.some((each) => closures.get(each)?.has(file)),
        )
        .map((file) => `${sheet} .${name} in ${file}`),
    );
  });
  expect(Object.values(sheets).filter((css) => openClasses(css).size > 0).length).toBeGreaterThan(20);
  expect(strangers).toEqual([]);
});
