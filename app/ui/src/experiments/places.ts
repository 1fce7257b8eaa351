/** Where in a JSON text something stands: a problem names it by its pointer, a person looks for a line. */
export interface Place {
  offset: number;
  line: number;
  column: number;
}

export type Parsed =
  | { isGood: true; value: unknown; find: (pointer: string, column?: number) => Place }
  | { isGood: false; message: string; place: Place };

/** Reads JSON and remembers where each value begins. A mistake in the text is told with its place. */
export function parseWithPlaces(text: string): Parsed {
  const offsets = new Map<string, number>();
  let at = 0;
  try {
    skip();
    readValue("", 0);
    skip();
    if (at < text.length) fail("the text should end here");
  } catch (error) {
    if (!(error instanceof Mistake)) throw error;
    return { isGood: false, message: error.message, place: placeOf(text, error.offset) };
  }
  return {
    isGood: true,
    value: JSON.parse(text) as unknown,
    find: (pointer, column) => placeOf(text, offsetOf(offsets, text, pointer, column)),
  };

  function readValue(pointer: string, depth: number): void {
    if (depth > 200) fail("this is nested too deeply");
    offsets.set(pointer, at);
    const start = text[at];
    if (start === "{") readMembers(pointer, depth);
    else if (start === "[") readEntries(pointer, depth);
    else if (start === '"') readString();
    else readWord();
  }

  function readMembers(pointer: string, depth: number): void {
    at += 1;
    skip();
    if (text[at] === "}") return void (at += 1);
    for (;;) {
      if (text[at] !== '"') fail("a name in double quotes is expected here");
      const name = readString();
      skip();
      expect(":");
      skip();
      readValue(`${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`, depth + 1);
      skip();
      if (text[at] === "}") return void (at += 1);
      expect(",", "a comma or } is expected here");
      skip();
    }
  }

  function readEntries(pointer: string, depth: number): void {
    at += 1;
    skip();
    if (text[at] === "]") return void (at += 1);
    for (let index = 0; ; index += 1) {
      readValue(`${pointer}/${index}`, depth + 1);
      skip();
      if (text[at] === "]") return void (at += 1);
      expect(",", "a comma or ] is expected here");
      skip();
    }
  }

  function readString(): string {
    const found = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y; // eslint-disable-line no-control-regex
    found.lastIndex = at;
    const match = found.exec(text);
    if (match === null) fail("this text in quotes does not end on its line, or has an unknown \\ in it");
    at += match[0].length;
    return JSON.parse(match[0]) as string;
  }

  function readWord(): void {
    const found = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true|false|null/y;
    found.lastIndex = at;
    const match = found.exec(text);
    if (match === null) {
      fail(
        at >= text.length
          ? "the text ends too early"
          : 'a value is expected here: a number, "text", {…} or […]',
      );
    }
    at += match[0].length;
  }

  function expect(mark: string, message = `${mark} is expected here`): void {
    if (text[at] !== mark) fail(at >= text.length ? "the text ends too early" : message);
    at += 1;
  }

  function skip(): void {
    while (at < text.length && " \t\n\r".includes(text[at] ?? "")) at += 1;
  }

  function fail(message: string): never {
    throw new Mistake(message, at);
  }
}

class Mistake extends Error {
  readonly offset: number;

  constructor(message: string, offset: number) {
    super(message);
    this.offset = offset;
  }
}

/** What is missing stands nowhere: then it is the nearest thing around it. `column` counts inside a quoted expression. */
function offsetOf(offsets: Map<string, number>, text: string, pointer: string, column?: number): number {
  const exact = offsets.get(pointer);
  if (exact !== undefined) return column !== undefined && text[exact] === '"' ? exact + column : exact;
  const parent = pointer.slice(0, Math.max(0, pointer.lastIndexOf("/")));
  return pointer === "" ? 0 : offsetOf(offsets, text, parent);
}

export function placeOf(text: string, offset: number): Place {
  const before = text.slice(0, offset);
  const line = before.split("\n").length;
  return { offset, line, column: offset - (before.lastIndexOf("\n") + 1) + 1 };
}
