import type { Api } from './service.ts'

/** Starts a draft of `count` items and waits for its end. Answers with the items a second; throws when one was not applied. */
export const runDraft = async (api: Api, id: string, count: number): Promise<number> => {
  const startedAt = performance.now()
  await api.start(id)
  const { counts } = await api.settled(id, 'succeeded')
  const tookMs = performance.now() - startedAt
  if (counts.applied !== count) throw new Error(`${counts.applied} of ${count} were applied`)
  return count / (tookMs / 1_000)
}
