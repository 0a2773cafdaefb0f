import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Checkpoint, Operation } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import type { Query } from '../router.ts'
import { isMoving, lookUp } from '../status.ts'
import { DataTable } from './data-table.tsx'
import { Loaded } from './loaded.tsx'
import { Pager } from './pager.tsx'
import { ProgressBar } from './progress-bar.tsx'
import { Age } from './time.tsx'

const EVERY_MS = 3_000
const PAGE_LIMIT = 50

/** Where each shard stands, and who works on it. Read when it is opened only. */
export const Shards = ({ operation, query }: { operation: Operation; query: Query }): JSX.Element => {
  const { t } = useApp()
  const [isOpen, setIsOpen] = useState(query.shards_cursor !== undefined || operation.stuck_signals.length > 0)
  return (
    <details class="card" open={isOpen} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <h2>{t.operation.shards}</h2>
      </summary>
      {isOpen && <ShardTable operation={operation} query={query} />}
    </details>
  )
}

const share = ({ from_ord, to_ord, cursor }: Checkpoint): number =>
  to_ord <= from_ord ? 1 : (cursor - from_ord) / (to_ord - from_ord)

const ShardTable = ({ operation: { id, status }, query }: { operation: Operation; query: Query }): JSX.Element => {
  const { client, t, language } = useApp()
  const cursor = query.shards_cursor
  const page = useRead(
    `checkpoints/${id}/${cursor}`,
    (signal) =>
      client.get('/operations/{id}/checkpoints', { path: { id }, query: { cursor, limit: PAGE_LIMIT }, signal }),
    isMoving(status) ? EVERY_MS : null,
  )
  return (
    <Loaded read={page}>
      {({ items, next_cursor }) => (
        <>
          <DataTable
            caption={t.operation.shards}
            rows={items}
            keyOf={({ shard }) => String(shard)}
            empty={t.nothingHere}
            columns={[
              { name: t.operation.shard, isHeader: true, cell: ({ shard }) => shard },
              {
                name: t.operation.range,
                isNumber: true,
                cell: ({ from_ord, to_ord }) => formatCount(to_ord - from_ord, language),
              },
              {
                name: t.operation.cursor,
                cell: (row) => <ProgressBar ratio={share(row)} label={`${t.operation.shard} ${row.shard}`} />,
              },
              { name: t.operation.state, cell: ({ state }) => lookUp(t.shardState, state) },
              { name: t.operation.owner, cell: ({ owner }) => (owner === null ? t.none : <code>{owner}</code>) },
              { name: t.operation.epoch, isNumber: true, cell: ({ epoch }) => epoch },
              { name: t.operation.leaseEnds, cell: ({ lease_expires_at }) => <Age at={lease_expires_at} /> },
              { name: t.operation.lastProgress, cell: ({ last_progress_at }) => <Age at={last_progress_at} /> },
            ]}
          />
          <Pager pathname={location.pathname} query={query} next={next_cursor} name="shards_cursor" />
        </>
      )}
    </Loaded>
  )
}
