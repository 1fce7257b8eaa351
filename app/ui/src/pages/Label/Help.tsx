/** All keys, and the switch that turns them off. */
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { needsFinding } from "../../labelling/keys";

interface Props {
  classes: readonly string[];
  keys: readonly (string | null)[];
  isOn: boolean;
  onTurn: (isOn: boolean) => void;
  onClose: () => void;
}

const COMMANDS: [string, string][] = [
  ["Space", "skip: this item cannot be labelled"],
  ["Backspace or Ctrl Z", "undo"],
  ["← →", "look at earlier answers; a class then corrects one"],
  ["Enter", "confirm a number, or send the last label now"],
  [".", "many items at once; arrows move, Shift selects"],
  ["Esc", "back to the item that is to be labelled"],
  ["?", "these keys"],
];

export function Help({ classes, keys, isOn, onTurn, onClose }: Props) {
  const find: [string, string][] = needsFinding(classes) ? [["/", "find a class by its name"]] : [];
  const named = classes
    .map((name, i): [string, string] => [keys[i] ?? "", name])
    .filter(([key]) => key !== "");
  return (
    <Dialog title="Keys" onClose={onClose}>
      <label className="row">
        <input type="checkbox" checked={isOn} onChange={(event) => onTurn(event.target.checked)} />
        Answer with single keys
      </label>
      <table className="keys">
        <tbody>
          {[...named, ...find, ...COMMANDS].map(([key, what]) => (
            <tr key={key}>
              <th scope="row">
                <kbd>{key}</kbd>
              </th>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div>
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </Dialog>
  );
}
