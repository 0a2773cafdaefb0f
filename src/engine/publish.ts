import { uuidv7 } from 'uuidv7'
import { ARTIFACT_BYTES_MAX, artifactObject, parseChunkRef, type WrittenChunk } from '../domain/artifact.ts'
import { formatId } from '../domain/ids.ts'
import type { ArtifactFile, Executor, SendOutcome } from '../domain/operation-type.ts'
import { ObjectMissing } from '../objects/object-store.ts'
import { sentReport, unsentReport, workerEvidence } from '../services/outcome-reports.ts'
import { publishArtifact } from '../services/publish-artifact.ts'
import { type NewArtifact, readChunkRefs } from '../storage/run/publish.ts'
import { type RunnableItem, readPosition } from '../storage/run/window.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'
import { MeasuredBytes, withDeadline } from './measured-bytes.ts'
import { patiently, writePatiently } from './outcomes.ts'
import { runSuspected, workerCrash } from './suspects.ts'

type ArtifactExecutor = Extract<Executor, { kind: 'artifact' }>

export interface ClaimedPublish extends RunnableItem {
  send: number
  attempt: number
}

class ChunkDamaged extends Error {
  override readonly name = 'ChunkDamaged'
}

/** A stop was asked for, or the lease ran out: nothing is published, and nothing has failed. */
class Stopped extends Error {
  override readonly name = 'Stopped'
}

/** Assembles the artifact and publishes it, or says why not. What was assembled and not published is deleted. */
export const publish = async (
  context: RunContext,
  held: HeldShard,
  executor: ArtifactExecutor,
  item: ClaimedPublish,
): Promise<void> => {
  const outcome = await runSuspected(context, held, item.ord, () => tryPublish(context, held, executor, item))
  switch (outcome) {
    case 'published':
      context.meter.items(held.type.name, 1, 0)
      return
    case 'unknown':
    case 'lost':
      return
    case 'stopped':
      return returnIntent(context, held, item)
    case 'used-up':
      return report(context, held, item, workerCrash(held.type.retry.maxAttempts))
    default:
      return report(context, held, item, outcome)
  }
}

/** `unknown`: the database is away; a takeover finds out. */
type Outcome = 'published' | 'stopped' | 'unknown' | SendOutcome

const tryPublish = async (
  context: RunContext,
  held: HeldShard,
  executor: ArtifactExecutor,
  item: ClaimedPublish,
): Promise<Outcome> => {
  const { log } = context
  const { lease, type } = held
  const refs = await patiently(held, context, () => context.database.query((c) => readChunkRefs(c, lease)))
  if (refs === null || refs === 'refused') return 'unknown'
  const chunks = refs.map(parseChunkRef).filter((chunk) => chunk !== null)
  const missing = refs.length - chunks.length
  if (missing > 0) return conflict('CHUNKS_MISSING', `${missing} of ${refs.length} chunks were not written`)
  const sizeBytes = chunks.reduce((sum, chunk) => sum + chunk.sizeBytes, 0)
  if (sizeBytes > ARTIFACT_BYTES_MAX) {
    return conflict(
      'ARTIFACT_TOO_LARGE',
      `it has ${sizeBytes} bytes; at most ${ARTIFACT_BYTES_MAX} are stored as one object`,
    )
  }
  const id = uuidv7()
  const object = artifactObject(lease, id)
  const startedAtMs = performance.now()
  let artifact: NewArtifact
  try {
    const file = executor.file(item.input)
    const sha256 = await assemble(context, held, { object, chunks, file, sizeBytes })
    const artifactKey = executor.artifactKey(item.input) ?? lease.operationId
    const { name, contentType } = file
    const keepDays = type.retention.ledgerDays
    artifact = { id, type: type.name, artifactKey, name, contentType, object, sizeBytes, sha256, keepDays }
  } catch (error) {
    discard(context, object)
    const outcome = afterFailure(error)
    if (outcome !== 'stopped')
      log.warn({ err: error, operation_id: lease.operationId }, 'assembling an artifact failed')
    return outcome
  }
  context.meter.record({ type: type.name, durationMs: performance.now() - startedAtMs, downstreamError: false })
  const done: SendOutcome = { state: 'applied', effectRef: formatId('art', id) }
  const evidence = workerEvidence(held, [sentReport(type, { ...item, resend: false }, done)])
  const published = await patiently(held, context, () => publishArtifact(context, lease, evidence, artifact))
  if (published === true) return 'published'
  // whether the commit was made is not known: the row, if it is there, names this object
  if (published === null) return 'unknown'
  discard(context, object)
  return published === 'refused' ? transient('PUBLISH_REFUSED', 'the artifact could not be recorded') : 'stopped'
}

/** Streams the chunks into one object, each checked against what was reported of it. Answers with the hash of the whole. */
const assemble = async (
  { objects }: RunContext,
  held: HeldShard,
  target: { object: string; chunks: readonly WrittenChunk[]; file: ArtifactFile; sizeBytes: number },
): Promise<string> => {
  const whole = new MeasuredBytes()
  // as long as bytes move, an assembly may take its time; a store that goes silent ends it
  await withDeadline(held.type.stallMs, ({ signal, touch }) => {
    async function* bytesOf(chunk: WrittenChunk) {
      const part = new MeasuredBytes()
      for await (const bytes of objects.read(chunk.object)) {
        signal.throwIfAborted()
        // giving the shard back in turn would begin the whole assembly anew
        if (held.stop !== null || held.isOver) throw new Stopped()
        held.step()
        touch()
        part.add(bytes)
        whole.add(bytes)
        yield bytes
      }
      if (part.sizeBytes !== chunk.sizeBytes || part.digest() !== chunk.sha256) throw new ChunkDamaged(chunk.object)
    }
    async function* all() {
      for (const chunk of target.chunks) yield* bytesOf(chunk)
    }
    const { contentType } = target.file
    return objects.put(target.object, all(), { contentType, sizeBytes: target.sizeBytes })
  })
  return whole.digest()
}

const afterFailure = (error: unknown): Outcome => {
  // flydrive wraps what its sources throw
  for (let e = error; e instanceof Error; e = e.cause) {
    if (e instanceof Stopped) return 'stopped'
    if (e instanceof ObjectMissing || e instanceof ChunkDamaged) {
      return conflict('CHUNKS_DAMAGED', 'a chunk is not what was written: a replay writes all of them again')
    }
  }
  return transient('ASSEMBLY_FAILED', 'the artifact could not be put together')
}

const conflict = (reasonCode: string, message: string): SendOutcome => ({
  state: 'failed',
  failureClass: 'conflict',
  reasonCode,
  message,
})

const transient = (reasonCode: string, message: string): SendOutcome => ({
  state: 'failed',
  failureClass: 'transient',
  reasonCode,
  message,
})

const report = (context: RunContext, held: HeldShard, item: ClaimedPublish, outcome: SendOutcome): Promise<void> =>
  writePatiently(context, held, [sentReport(held.type, { ...item, resend: false }, outcome)])

/** What was claimed and not published goes back, as long as it is still ours; else its next holder finds it. */
const returnIntent = async (context: RunContext, held: HeldShard, item: ClaimedPublish): Promise<void> => {
  const position = await patiently(held, context, () =>
    context.database.query((connection) => readPosition(connection, held.lease)),
  )
  if (position === null || position === 'refused') {
    held.lost = true
    return
  }
  if (position.stopRequested !== null) held.stopped(position.stopRequested)
  await writePatiently(context, held, [unsentReport({ ...item, resend: false })])
}

/** Nobody waits for it: what is left is removed by the janitor. */
const discard = ({ objects, log }: RunContext, object: string): void => {
  objects.delete(object).catch((error: unknown) => log.warn({ err: error, object }, 'an object is left to the janitor'))
}
