/**
 * The checkpoint of a shard is where it can be restarted from: a cursor, waits, intents, the order of steps. It names what
 * wrote it, as old and new workers run side by side while a fleet is upgraded:
 *
 *   schema    the form of the checkpoint itself; grows when a release gives one of its parts another meaning
 *   type      name and version of the type, by which each item was checked and has its effect key
 *   code      of the type, in the worker that had the shard last: for people, nothing is decided by it
 *
 * A worker claims shards of its own types and versions only, in a form that it knows, and leaves the others alone. What no worker
 * can go on with would then wait without a word. So it is paused, and told why: nobody guesses what an older item means to a
 * newer type, and it does not fail, as nothing is wrong with it.
 *
 * Of two versions of a type the newer one is the judge: who has an older one may be what is left of a fleet that is being
 * upgraded, and cannot know that nobody comes. After a real step back the operation waits, and shows `no_worker`.
 */

/** What this version writes, and the newest that it understands. */
export const CHECKPOINT_SCHEMA = 1

export interface Checkpoint {
  type: string
  typeVersion: number
  /** The newest of the operation's shards. */
  schemaVersion: number
}

type Incompatibility =
  /** Its items were checked for an older version of the type than the one that is installed. */
  | { because: 'type-version'; detail: string }
  /** A newer version of opledger has written it. */
  | { because: 'schema'; detail: string }

const WAY_OUT =
  'start a worker that can and resume it, or cancel it and replay what is left, which begins anew with what is installed'

/**
 * Why nobody goes on from a checkpoint; null: somebody does, or it is not for this process to say.
 * `installed`: the version of the type in this process. `running`: the newest form of checkpoint that any worker knows, seen
 * lately, that has the type in the checkpoint's version; null: there is none.
 */
export const incompatibility = (
  { type, typeVersion, schemaVersion }: Checkpoint,
  installed: number | null,
  running: number | null,
): Incompatibility | null => {
  if (installed === null || installed < typeVersion) return null
  if (running !== null && running >= schemaVersion) return null
  if (schemaVersion > CHECKPOINT_SCHEMA) {
    return {
      because: 'schema',
      detail: `its checkpoint has form ${schemaVersion}, which a newer version of opledger has written, and no worker that is running knows more than form ${Math.max(running ?? 0, CHECKPOINT_SCHEMA)}: ${WAY_OUT}`,
    }
  }
  if (installed > typeVersion) {
    return {
      because: 'type-version',
      detail: `it was accepted with version ${typeVersion} of ${type}, version ${installed} is installed, and no worker that is running has version ${typeVersion}: ${WAY_OUT}`,
    }
  }
  return null
}
