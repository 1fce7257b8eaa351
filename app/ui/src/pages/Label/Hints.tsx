/** What else can be done, as buttons that name their keys. */
import type { ReactNode } from "react";

interface Props {
  areKeysOn: boolean;
  canUndo: boolean;
  canSkip: boolean;
  canGrid: boolean;
  isGrid: boolean;
  isLooking: boolean;
  onSkip: () => void;
  onUndo: () => void;
  onGrid: () => void;
  onHelp: () => void;
  onForward: () => void;
}

export function Hints({ areKeysOn, canUndo, canSkip, canGrid, isGrid, isLooking, ...on }: Props) {
  return (
    <div className="hints">
      {canSkip && (
        <Hint name="Space" isKeyOn={areKeysOn} onPress={on.onSkip}>
          skip
        </Hint>
      )}
      {canUndo && (
        <Hint name="Backspace" isKeyOn={areKeysOn} onPress={on.onUndo}>
          undo
        </Hint>
      )}
      {isLooking && (
        <Hint name="Esc" isKeyOn={areKeysOn} onPress={on.onForward}>
          go on
        </Hint>
      )}
      {canGrid && (
        <Hint name="." isKeyOn={areKeysOn} onPress={on.onGrid}>
          {isGrid ? "one at a time" : "many at once"}
        </Hint>
      )}
      <span className="last">
        <Hint name="?" isKeyOn={areKeysOn} onPress={on.onHelp}>
          all keys
        </Hint>
      </span>
    </div>
  );
}

interface HintProps {
  name: string;
  isKeyOn: boolean;
  onPress: () => void;
  children: ReactNode;
}

function Hint({ name, isKeyOn, onPress, children }: HintProps) {
  return (
    <button
      type="button"
      className="hint"
      onClick={(event) => {
        if (event.detail > 0) event.currentTarget.blur();
        onPress();
      }}
    >
      {isKeyOn && <kbd aria-hidden="true">{name}</kbd>} {children}
    </button>
  );
}
