/** Time as labelling sees it, so that tests can bring their own. */
export interface Clock {
  /** Milliseconds since 1970. */
  now: () => number;
  /** Calls once, after so many milliseconds; the answer calls it off. */
  after: (milliseconds: number, call: () => void) => () => void;
}

export const browserClock: Clock = {
  now: () => Date.now(),
  after: (milliseconds, call) => {
    const timer = setTimeout(call, milliseconds);
    return () => clearTimeout(timer);
  },
};
