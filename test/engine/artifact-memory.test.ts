/** A large export in a real worker: its memory does not grow with the size of the ledger. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { openArtifactService } from '../support/artifacts.ts'
import { plantOperation } from '../support/planted-operation.ts'
import { PROCESSES_MS, untilStatus } from '../support/service.ts'
import { artifactTypeFile } from '../support/service-artifact-type.ts'
import { openWorkerFleet } from '../support/worker-process.ts'

const ENTRIES = 100_000
const GROWTH_MIB_MAX = 120

const mebibytesOf = (pid: number, figure: 'VmRSS' | 'VmHWM'): number =>
  Number(new RegExp(`${figure}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1_024

/** Forgets the peak so far: a start compiles everything, and may have stood higher than what is measured here. */
const forgetPeak = (pid: number): void => writeFileSync(`/proc/${pid}/clear_refs`, '5')

it.runIf(process.platform === 'linux')(
  '100,000 entries are exported in flat memory',
  { timeout: PROCESSES_MS },
  async () => {
    const made = await openArtifactService()
    const dataDir = mkdtempSync(path.join(os.tmpdir(), 'opledger-data-'))
    const { service } = made
    const fleet = openWorkerFleet({
      databaseUrl: service.url,
      typeFiles: [artifactTypeFile],
      env: { OPLEDGER_ARTIFACT_STORE: `file:${made.directory}`, OPLEDGER_DATA_DIR: dataDir },
    })
    try {
      const of = await plantOperation(service.database, { type: 'report', status: 'succeeded', items: [] })
      await service.database.query(
        ({ sql }) => sql`
          insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash,
            message, source, code_version)
          select 1, ${of}::uuid, n, 'item-' || n, 1, 'applied', 'effect-' || n, repeat('0', 64), repeat('m', 100), 'worker',
            'c1'
          from generate_series(0, ${ENTRIES - 1}::int) n`,
      )
      await service.database.query(
        ({ sql }) => sql`update operations set items_total = ${ENTRIES}::int where id = ${of}::uuid`,
      )
      const worker = await fleet.start()
      const small = await made.make('report', { chunks: 2 })
      await untilStatus(service, small.id, 'succeeded')
      forgetPeak(worker.pid)
      const before = mebibytesOf(worker.pid, 'VmRSS')
      const { id, counts } = await made.make('ledger-export', { operation_id: formatId('op', of), format: 'csv' })
      expect(counts.total).toBe(21)
      await untilStatus(service, id, 'succeeded')
      const after = mebibytesOf(worker.pid, 'VmHWM')
      const file = await made.download(id)
      expect(String(file).split('\r\n')).toHaveLength(ENTRIES + 2)
      process.stdout.write(
        `export of ${ENTRIES} entries: ${Math.round(file.length / 2 ** 20)} MiB, the worker ${Math.round(before)} MiB, at most ${Math.round(after)} MiB\n`,
      )
      expect(after - before).toBeLessThan(GROWTH_MIB_MAX)
    } finally {
      await fleet.stop()
      await made.close()
      rmSync(dataDir, { recursive: true, force: true })
    }
  },
)
