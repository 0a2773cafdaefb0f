import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import { Badge } from '../parts/badge.tsx'
import { DataTable } from '../parts/data-table.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Age } from '../parts/time.tsx'
import { lookUp, type Tone } from '../status.ts'

const EVERY_MS = 3_000
const TONES: Readonly<Record<string, Tone>> = { active: 'good', draining: 'warning', gone: 'bad' }

export const WorkersPage = (): JSX.Element => {
  const { client, t, language } = useApp()
  const workers = useRead('workers', (signal) => client.get('/workers', { signal }), EVERY_MS)
  return (
    <>
      <h1>{t.workers.title}</h1>
      <Loaded read={workers}>
        {({ items }) => {
          const versions = new Set(
            items.filter(({ state }) => state !== 'gone').map(({ code_version }) => code_version),
          )
          return (
            <>
              {versions.size > 1 && <p class="box warning">{t.workers.mixed(versions.size)}</p>}
              <DataTable
                caption={t.workers.list}
                rows={items}
                keyOf={({ id }) => id}
                empty={t.workers.empty}
                columns={[
                  { name: t.workers.worker, isHeader: true, cell: ({ id }) => <code>{id}</code> },
                  {
                    name: t.workers.state,
                    cell: ({ state }) => <Badge tone={TONES[state] ?? 'neutral'}>{lookUp(t.workerState, state)}</Badge>,
                  },
                  { name: t.workers.leases, isNumber: true, cell: ({ leases }) => formatCount(leases, language) },
                  { name: t.workers.codeVersion, cell: ({ code_version }) => <code>{code_version}</code> },
                  { name: t.workers.host, cell: ({ host, pid }) => `${host}, ${pid}` },
                  { name: t.workers.started, cell: ({ started_at }) => <Age at={started_at} /> },
                  { name: t.workers.lastSeen, cell: ({ last_seen_at }) => <Age at={last_seen_at} /> },
                ]}
              />
            </>
          )
        }}
      </Loaded>
    </>
  )
}
