/** `after` with real workers: the second operation sends nothing before the first one has ended as asked. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit } from '../support/processes.ts'
import { openTestService, PROCESSES_MS, type TestService, untilStatus } from '../support/service.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const typeFile = writeTypeFile([grantType('grant', {}, { lookup: grantLookup(200), on_absent: 'retry' })])
let effects: EffectServer
let service: TestService
let fleet: WorkerFleet
beforeAll(async () => {
  effects = await startEffectServer()
  const env = { EFFECTS_URL: effects.url }
  service = await openTestService({ typeFiles: [typeFile.file], env })
  fleet = openWorkerFleet({ databaseUrl: service.url, typeFiles: [typeFile.file], env })
}, PROCESSES_MS)
afterAll(async () => {
  await fleet.stop()
  await service.close()
  await effects.close()
  typeFile.remove()
})

const submit = (name: string, after: string[], change: object = {}, mode = 'ok') =>
  service.submit('grant', [{ key: name, input: { mode, delay_ms: 50 } }], { after, body: { name }, ...change })

describe('a chain', () => {
  it(
    'runs one behind the other, in the order in which it was written, also when a worker is killed on the way',
    async () => {
      const ids: string[] = []
      for (const name of ['a', 'b', 'c', 'd']) ids.push((await submit(name, ids.slice(-1))).id)
      const first = await fleet.start()
      await untilStatus(service, ids[0] as string, 'succeeded')
      first.kill('SIGKILL')
      await waitForExit(first.child)
      await fleet.start()
      const views = []
      for (const id of ids) views.push(await untilStatus(service, id, 'succeeded'))
      const times = views.flatMap(({ startedAt, completedAt }) => [startedAt ?? '', completedAt ?? ''])
      expect(times).toEqual([...times].sort())
      for (const name of ['a', 'b', 'c', 'd']) expect(effects.entry(`grant:${name}`)).toMatchObject({ applied: 1 })
    },
    PROCESSES_MS,
  )

  it(
    'ends with the first that fails; what asked for `settled` runs all the same',
    async () => {
      await fleet.start()
      const failing = (await submit('f1', [], {}, 'conflict')).id
      const second = (await submit('f2', [failing])).id
      const third = (await submit('f3', [second])).id
      const anyway = (await submit('f4', [failing, third], { afterWhen: 'settled' })).id
      await untilStatus(service, failing, 'failed')
      for (const id of [second, third]) {
        const view = await untilStatus(service, id, 'cancelled')
        expect(view.cancel.requestedBy).toBe('system:after')
        expect(view.counts).toMatchObject({ unprocessed: 1, applied: 0 })
      }
      await untilStatus(service, anyway, 'succeeded')
      for (const name of ['f2', 'f3']) expect(effects.entry(`grant:${name}`).requests).toBe(0)
    },
    PROCESSES_MS,
  )
})
