import type { JSX } from 'preact'
import type { Item, Operation } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import { changeQuery, Link } from '../navigation.tsx'
import { Badge } from '../parts/badge.tsx'
import { DataTable } from '../parts/data-table.tsx'
import { Downloads } from '../parts/downloads.tsx'
import { CheckFields, FilterForm, joined, TextField, textOf } from '../parts/fields.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Pager } from '../parts/pager.tsx'
import { Age } from '../parts/time.tsx'
import { listOf, pathOf, type Query, withFilters } from '../router.ts'
import { isMoving, lookUp, type Tone } from '../status.ts'

/** An operation may have a million items: they are read a page at a time, whatever the filter. */
const PAGE_LIMIT = 50
const EVERY_MS = 3_000

const TONES: Readonly<Record<string, Tone>> = {
  applied: 'good',
  skipped: 'neutral',
  failed: 'bad',
  uncertain: 'warning',
  unprocessed: 'neutral',
}
const STATES = Object.keys(TONES)

export const OperationItems = ({ operation, query }: { operation: Operation; query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const { id, status } = operation
  const filters = { state: query.state, failure_class: query.failure_class, key: query.key }
  const cursor = query.items_cursor
  const page = useRead(
    `items/${id}?${JSON.stringify({ ...filters, cursor })}`,
    (signal) =>
      client.get('/operations/{id}/items', { path: { id }, query: { ...filters, cursor, limit: PAGE_LIMIT }, signal }),
    isMoving(status) ? EVERY_MS : null,
  )
  const filter = (values: FormData): void =>
    changeQuery(
      withFilters(query, {
        state: joined(values, 'state'),
        failure_class: joined(values, 'failure_class'),
        key: textOf(values, 'key'),
      }),
    )
  const clear = (): void =>
    changeQuery(withFilters(query, { state: undefined, failure_class: undefined, key: undefined }))
  return (
    <section class="card" aria-labelledby="items">
      <h2 id="items">{t.operation.items}</h2>
      <FilterForm label={t.operation.items} onFilter={filter} onClear={clear}>
        <CheckFields
          name="state"
          label={t.operation.state}
          chosen={listOf(query.state)}
          choices={STATES.map((value) => ({ value, text: lookUp(t.itemState, value) }))}
        />
        <CheckFields
          name="failure_class"
          label={t.operation.failureClass}
          chosen={listOf(query.failure_class)}
          choices={Object.entries(t.failureClass).map(([value, text]) => ({ value, text }))}
        />
        <TextField name="key" label={t.operation.itemKey} value={query.key} />
      </FilterForm>
      <Loaded read={page}>
        {({ items, next_cursor }) => (
          <>
            <ItemTable operationId={id} items={items} />
            <Pager pathname={location.pathname} query={query} next={next_cursor} name="items_cursor" />
          </>
        )}
      </Loaded>
      <Downloads operationId={id} filters={filters} />
    </section>
  )
}

const ItemTable = ({ operationId, items }: { operationId: string; items: readonly Item[] }): JSX.Element => {
  const { t, language } = useApp()
  return (
    <DataTable
      caption={t.operation.items}
      rows={items}
      keyOf={({ ord }) => String(ord)}
      empty={t.nothingHere}
      columns={[
        {
          name: t.operation.item,
          isHeader: true,
          cell: ({ key }) => <Link href={pathOf({ page: 'item', id: operationId, key })}>{key}</Link>,
        },
        {
          name: t.operation.state,
          cell: ({ state, failure_class, reason_code, retry_at }) => (
            <>
              <Badge tone={TONES[state] ?? 'neutral'}>{lookUp(t.itemState, state)}</Badge>
              {failure_class !== null && <span class="small"> {lookUp(t.failureClass, failure_class)}</span>}
              {reason_code !== null && <code class="small"> {reason_code}</code>}
              {retry_at !== null && (
                <p class="small">
                  {t.operation.retryAt} <Age at={retry_at} />
                </p>
              )}
            </>
          ),
        },
        { name: t.operation.attempt, isNumber: true, cell: ({ attempt }) => formatCount(attempt, language) },
        {
          name: t.operation.effectRef,
          cell: ({ effect_ref }) => (effect_ref === null ? t.none : <code>{effect_ref}</code>),
        },
        { name: t.operation.observed, cell: ({ observed_at }) => <Age at={observed_at} /> },
      ]}
    />
  )
}
