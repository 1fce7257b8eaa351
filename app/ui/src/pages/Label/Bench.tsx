/** Where one sits and labels: the item, the answers, and what was said last. */
import { useState, type CSSProperties } from "react";
import { Link } from "wouter";
import { Item } from "../../components/Item";
import { Notice } from "../../components/Notice";
import { Progress } from "../../components/Progress";
import type { Project, Round } from "../../api/types";
import { Button } from "../../components/Button";
import { many } from "../../formats";
import { useForbidden } from "../../hooks/useMe";
import { isTooSoon, keysOf, needsFinding, type Command } from "../../labelling/keys";
import { targets } from "../../labelling/reducer";
import { sayingText, type Saying } from "../../labelling/saying";
import { useLabelling } from "../../labelling/useLabelling";
import { useShortcuts } from "../../labelling/useShortcuts";
import { Choices } from "./Choices";
import { columnsOf, Grid } from "./Grid";
import { Help } from "./Help";
import { Hints } from "./Hints";
import { Instructions } from "./Instructions";
import { NumberEntry } from "./NumberEntry";
import { Pause, pauseOf } from "./Pause";
import { RefusedList } from "./RefusedList";
import { SaveState } from "./SaveState";
import { Strip } from "./Strip";
import "./Label.css";

interface Props {
  project: Project;
  round: Round;
  annotator: string;
}

export function Bench({ project, round: first, annotator }: Props) {
  const { labelling, now } = useLabelling(project, first, annotator);
  const { state, kept, round } = now;
  const forbidden = useForbidden("label");
  const classes = project.task.kind === "classification" ? project.task.classes : null;
  const keys = keysOf(classes ?? []);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [isFinding, setFinding] = useState(false);
  const shortcuts = useShortcuts(forbidden === undefined ? keys : [], command);

  const looking = state.lookingAt === null ? null : (state.known[state.lookingAt] ?? null);
  const item = looking ?? state.items[0] ?? null;
  const isLooking = state.lookingAt !== null;
  const row = isLooking ? state.lookingAt : (item?.row ?? null);
  const said = kept.recent.find((recent) => recent.row === row)?.saying ?? null;
  const was = row === null ? null : isLooking ? said : (state.old[row] ?? null);
  const pause = isLooking ? null : pauseOf(now);

  function answer(saying: Saying, by: string): void {
    if (forbidden !== undefined || isTooSoon(by, Date.now(), labelling.snapshot().state.shown)) return;
    labelling.answer(saying, by);
  }

  /** Whether the key meant something here. */
  function command(pressed: Command, key: string): boolean {
    const { state: current, kept: queue } = labelling.snapshot();
    const isGrid = current.grid !== null && current.lookingAt === null;
    const hasTarget = targets(current).length > 0;
    switch (pressed.kind) {
      case "class": {
        const name = classes?.[pressed.index];
        if (name === undefined || !hasTarget) return false;
        answer({ kind: "label", value: name }, key);
        return true;
      }
      case "skip":
        if (!hasTarget) return false;
        answer({ kind: "skip" }, key);
        return true;
      case "undo":
        labelling.undo();
        return true;
      case "confirm":
        if (queue.held === null) return false;
        labelling.confirm();
        return true;
      case "back":
      case "forward": {
        const by = pressed.kind === "back" ? -1 : 1;
        if (isGrid) labelling.move(by, pressed.isSelecting === true);
        else labelling.turn(by);
        return true;
      }
      case "up":
      case "down": {
        if (!isGrid) return false;
        labelling.move((pressed.kind === "up" ? -1 : 1) * columnsOf(), pressed.isSelecting === true);
        return true;
      }
      case "grid":
        if (classes === null) return false;
        labelling.grid(current.grid === null);
        return true;
      case "help":
        setHelpOpen(true);
        return true;
      case "find":
        if (classes === null || !needsFinding(classes)) return false;
        setFinding(true);
        return true;
      case "leave":
        if (current.lookingAt !== null) labelling.look(null);
        else if (current.grid !== null) labelling.grid(false);
        else return false;
        return true;
    }
  }

  const nDone = state.left === null ? round.n_done : round.n_items - state.left;
  return (
    <div className="bench" style={answerRows(classes)}>
      <header className="between">
        <div>
          <Link href={`/p/${project.id}`} className="quiet">
            {project.name}
          </Link>
          <h1>Round {round.number}</h1>
        </div>
        <SaveState now={now} annotator={annotator} onRetry={labelling.retry} />
      </header>
      <Progress done={nDone} total={round.n_items} label="Items of this round that are done">
        {leftWords(now.state.left, round)}
        {round.retrain && round.status === "open" && (
          <span className="aside"> When the round is complete a new version is trained.</span>
        )}
      </Progress>
      <Instructions text={project.display?.instructions ?? null} />
      {forbidden !== undefined && <Notice kind="warn">{forbidden}</Notice>}
      {now.isUnsafe && (
        <Notice kind="bad">
          <p>
            This browser keeps nothing: its storage is full or switched off. Labels that were not sent are
            lost when the tab is closed.
          </p>
        </Notice>
      )}
      {state.nLost > 0 && (
        <Notice kind="warn">
          <p>{many(state.nLost, "item")} went to others while you were away.</p>
          <Button onClick={labelling.readLost}>OK</Button>
        </Notice>
      )}
      {now.isElsewhere ? (
        <Notice kind="warn">
          <p>You label this round in another tab.</p>
          <Button kind="primary" onClick={labelling.takeOver}>
            Continue here
          </Button>
        </Notice>
      ) : (
        <>
          <RefusedList
            refused={kept.refused}
            project={project}
            known={state.known}
            onCorrect={(refused) => labelling.look(refused)}
            onDrop={labelling.dropRefused}
          />
          {pause !== null ? (
            <Pause pause={pause} project={project} round={round} now={now} labelling={labelling} />
          ) : state.grid !== null && !isLooking ? (
            <Grid
              items={state.items}
              grid={state.grid}
              project={project}
              onSelect={labelling.select}
              onLeave={() => labelling.grid(false)}
            />
          ) : (
            <section className="stage" aria-label={isLooking ? "An earlier item" : "The item to label"}>
              {isLooking && (
                <p className="quiet figures looking">
                  {looking?.key ?? "an earlier item"}: you said {said === null ? "nothing" : words(said)}.
                  Answer to correct it, <kbd>Esc</kbd> to go on.
                </p>
              )}
              {item !== null && <Item key={item.row} item={item} project={project} />}
            </section>
          )}
          <p className="hidden" role="status">
            {item === null || pause !== null ? "" : `${isLooking ? "Again" : "Item"} ${item.key}`}
          </p>
          {(pause === null || isLooking) && row !== null && (
            <div className="answers">
              {classes !== null ? (
                <Choices
                  classes={classes}
                  keys={shortcuts.isOn ? keys : []}
                  was={was}
                  isFinding={isFinding}
                  onFinding={setFinding}
                  onChoose={(value) => answer({ kind: "label", value }, `click ${value}`)}
                />
              ) : (
                <NumberEntry
                  key={`${row} ${isLooking}`}
                  nOutputs={project.task.kind === "regression" ? project.task.outputs : 1}
                  unit={project.display?.unit ?? null}
                  was={was}
                  onConfirm={(value) => labelling.answer({ kind: "label", value }, "Enter")}
                  onCommand={(pressed) => command(pressed, "")}
                />
              )}
            </div>
          )}
          <Hints
            areKeysOn={shortcuts.isOn}
            canUndo={kept.recent.length > 0}
            canSkip={row !== null && pause === null}
            isGrid={state.grid !== null}
            canGrid={classes !== null && pause === null}
            onSkip={() => answer({ kind: "skip" }, "click skip")}
            onUndo={labelling.undo}
            onGrid={() => labelling.grid(state.grid === null)}
            onHelp={() => setHelpOpen(true)}
            isLooking={isLooking}
            onForward={() => labelling.look(null)}
          />
          <Strip
            recent={kept.recent.slice(-10)}
            known={state.known}
            lookingAt={state.lookingAt}
            project={project}
            onLook={labelling.look}
          />
        </>
      )}
      {isHelpOpen && (
        <Help
          classes={classes ?? []}
          keys={keys}
          isOn={shortcuts.isOn}
          onTurn={shortcuts.turn}
          onClose={() => setHelpOpen(false)}
        />
      )}
    </div>
  );

  function words(saying: Saying): string {
    return sayingText(saying, project.display?.unit);
  }
}

/** Read by the style sheet: in how many rows of two a phone shows the buttons; a number takes two. */
function answerRows(classes: readonly string[] | null): CSSProperties {
  return { "--answer-rows": classes === null ? 2 : Math.ceil(classes.length / 2) } as CSSProperties;
}

function leftWords(left: number | null, { overlap, status }: Round): string {
  if (status === "complete") return "All items are done.";
  if (status === "closed") return "This round was closed.";
  if (left === null) return "…";
  return overlap === 1 ? `${many(left, "item")} left.` : `${many(left, "item")} need more answers.`;
}
