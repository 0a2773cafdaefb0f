/** Artifacts of a code type: what its handlers give out is checked, so that a slip of theirs names itself. */
import { z } from 'zod'
import { ARTIFACT_KEY_BYTES_MAX, CHUNKS_MAX, PUBLISH_KEY, safeFileName } from '../domain/artifact.ts'
import type {
  ArtifactFile,
  ArtifactRun,
  ChunkRun,
  Executor,
  InputIssue,
  Json,
  PlannedChunk,
} from '../domain/operation-type.ts'
import { assertJson } from './definition-issues.ts'

interface ArtifactDefinition {
  name: string
  input: z.ZodType
  plan(input: unknown, run: ArtifactRun): Promise<PlannedChunk[] | { issues: InputIssue[] }>
  writeChunk(chunk: PlannedChunk, run: ChunkRun): AsyncIterable<Uint8Array | string>
  file(input: unknown): ArtifactFile
  artifactKey?(input: unknown): string
}

const KEY_BYTES_MAX = 255

const chunkKey = z
  .string()
  .min(1)
  .refine((key) => Buffer.byteLength(key) <= KEY_BYTES_MAX && !/\0|\p{Surrogate}/u.test(key), 'is not an item key')
const planned = z.union([
  z.array(z.object({ key: chunkKey, input: z.custom<Json>(isJson, 'is not JSON') })).min(1),
  z.object({ issues: z.array(z.object({ pointer: z.string(), detail: z.string() })).min(1) }),
])
const file = z.object({
  name: z.string().min(1).transform(safeFileName),
  contentType: z.string().regex(/^[\w.+-]+\/[\w.+-]+(?:; ?[\w-]+=[\w.+-]+)?$/, 'is not a media type'),
})
const artifactKey = z
  .string()
  .min(1)
  .refine((key) => Buffer.byteLength(key) <= ARTIFACT_KEY_BYTES_MAX && !/\0|\p{Surrogate}/u.test(key), 'is no key')

function isJson(value: unknown): boolean {
  try {
    assertJson(value)
    return true
  } catch {
    return false
  }
}

export const artifactExecutor = (
  definition: ArtifactDefinition,
  chunkTimeoutMs: number,
): Extract<Executor, { kind: 'artifact' }> => {
  /** The input was accepted at submission; a newer version of the type may see that differently. */
  const parsed = (input: Json): unknown => definition.input.parse(input)
  const checked = <T>(schema: z.ZodType<T>, handler: string, value: unknown): T => {
    const result = schema.safeParse(value)
    if (result.success) return result.data
    const [issue] = result.error.issues
    throw new Error(`${definition.name}: ${handler} gave no valid answer: ${issue?.path.join('.')} ${issue?.message}`, {
      cause: result.error,
    })
  }
  return {
    kind: 'artifact',
    chunkTimeoutMs,
    plan: async (input, run) => {
      const answer = checked(planned, 'plan', await definition.plan(parsed(input), run))
      if ('issues' in answer) return answer
      if (answer.length > CHUNKS_MAX) {
        return { issues: [{ pointer: '', detail: `asks for ${answer.length} chunks; at most ${CHUNKS_MAX} are made` }] }
      }
      const keys = new Set([PUBLISH_KEY, ...answer.map(({ key }) => key)])
      if (keys.size <= answer.length) {
        throw new Error(`${definition.name}: plan gave two chunks one key, or called one "${PUBLISH_KEY}"`)
      }
      return { chunks: answer }
    },
    writeChunk: (chunk, run) => definition.writeChunk(chunk, run),
    file: (input) => checked(file, 'file', definition.file(parsed(input))),
    artifactKey: (input) =>
      definition.artifactKey === undefined
        ? null
        : checked(artifactKey, 'artifactKey', definition.artifactKey(parsed(input))),
  }
}
