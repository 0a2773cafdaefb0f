import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import { Link } from '../navigation.tsx'
import { pathOf, type Query } from '../router.ts'
import { lookUp } from '../status.ts'
import { Action } from './action-form.tsx'
import { DataTable } from './data-table.tsx'
import { Loaded } from './loaded.tsx'
import { OperationLink } from './operation-links.tsx'
import { Pager } from './pager.tsx'
import { Age } from './time.tsx'

const PAGE_LIMIT = 50

interface DeadLettersProps {
  incidentId: string
  query: Query
  onChanged: () => void
}

export const DeadLetters = ({ incidentId, query, onChanged }: DeadLettersProps): JSX.Element => {
  const { client, t, language } = useApp()
  const { cursor } = query
  const letters = useRead(
    `dead-letters/${incidentId}/${cursor}`,
    (signal) => client.get('/dead-letters', { query: { incident_id: incidentId, cursor, limit: PAGE_LIMIT }, signal }),
    null,
  )
  const refresh = (): void => {
    letters.refresh()
    onChanged()
  }
  return (
    <section aria-labelledby="letters">
      <h2 id="letters">{t.incidents.letters}</h2>
      <Loaded read={letters}>
        {({ items, next_cursor }) => (
          <>
            <DataTable
              caption={t.incidents.letters}
              rows={items}
              keyOf={({ id }) => id}
              empty={t.nothingHere}
              columns={[
                {
                  name: t.operation.item,
                  isHeader: true,
                  cell: ({ operation_id, item_key }) => (
                    <>
                      <Link href={pathOf({ page: 'item', id: operation_id, key: item_key })}>{item_key}</Link>
                      <p class="small">
                        <OperationLink id={operation_id} />
                      </p>
                    </>
                  ),
                },
                { name: t.incidents.message, cell: ({ message, reason_code }) => message ?? reason_code ?? t.none },
                {
                  name: t.incidents.attempts,
                  isNumber: true,
                  cell: ({ attempts }) => formatCount(attempts, language),
                },
                { name: t.operations.created, cell: ({ created_at }) => <Age at={created_at} /> },
                {
                  name: t.incidents.status,
                  cell: ({ id, status, closing }) => (
                    <>
                      {lookUp(t.deadLetterStatus, status)}
                      {closing !== null && <p class="quote">{closing.reason}</p>}
                      {status === 'open' && (
                        <Action
                          button={t.incidents.discard}
                          title={t.incidents.discardTitle}
                          what={t.incidents.discardWhat}
                          confirm={t.incidents.discardTitle}
                          reason="required"
                          isDangerous
                          run={(reason) =>
                            client.post('/dead-letters/{id}/discard', { path: { id }, body: { reason: reason ?? '' } })
                          }
                          onDone={refresh}
                        />
                      )}
                    </>
                  ),
                },
              ]}
            />
            <Pager pathname={location.pathname} query={query} next={next_cursor} />
          </>
        )}
      </Loaded>
    </section>
  )
}
