import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Operation } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { useRead } from '../live/use-read.ts'
import { changeQuery, Link, navigate } from '../navigation.tsx'
import { StatusBadge } from '../parts/badge.tsx'
import { DataTable } from '../parts/data-table.tsx'
import { CheckFields, FilterForm, joined, SelectField, TextField, textOf } from '../parts/fields.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Pager } from '../parts/pager.tsx'
import { ProgressBar } from '../parts/progress-bar.tsx'
import { Age } from '../parts/time.tsx'
import { listOf, pathOf, type Query, urlWith, withFilters } from '../router.ts'
import { lookUp, statusSentence } from '../status.ts'

const EVERY_MS = 3_000
const PAGE_LIMIT = 50
const PATHNAME = pathOf({ page: 'operations' })
/** What goes to the API as it stands in the URL. */
const FILTERS = [
  'status',
  'type',
  'requested_by',
  'created_after',
  'created_before',
  'replay_of',
  'item_key',
  'effect_key',
]

/** Of the URL, what the API understands; a link with something else still opens. */
export const operationFilters = (query: Query): Record<string, string> =>
  Object.fromEntries(
    Object.entries(query).filter(([name]) => FILTERS.includes(name) || name === 'cursor' || name.startsWith('label.')),
  )

export const OperationsPage = ({ query }: { query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const filters = operationFilters(query)
  const isFirstPage = query.cursor === undefined
  const list = useRead(
    `operations?${JSON.stringify(filters)}`,
    (signal) => client.get('/operations', { query: { ...filters, limit: PAGE_LIMIT }, signal }),
    isFirstPage ? EVERY_MS : null,
  )
  return (
    <>
      <h1>{t.operations.title}</h1>
      <Search query={query} />
      <Filters query={query} />
      {query.item_key !== undefined && <p>{t.operations.foundBy.item_key(query.item_key)}</p>}
      {query.effect_key !== undefined && <p>{t.operations.foundBy.effect_key(query.effect_key)}</p>}
      <Loaded read={list}>
        {({ items, next_cursor }) => (
          <>
            <p class="small muted">{isFirstPage ? t.operations.live : t.operations.notLive}</p>
            <Table operations={items} itemKey={query.item_key} />
            <Pager pathname={PATHNAME} query={query} next={next_cursor} />
          </>
        )}
      </Loaded>
    </>
  )
}

type SearchBy = 'id' | 'item_key' | 'effect_key'

const Search = ({ query }: { query: Query }): JSX.Element => {
  const { t } = useApp()
  const [by, setBy] = useState<SearchBy>(
    query.item_key !== undefined ? 'item_key' : query.effect_key !== undefined ? 'effect_key' : 'id',
  )
  const search = (event: SubmitEvent): void => {
    event.preventDefault()
    const text = textOf(new FormData(event.currentTarget as HTMLFormElement), 'q')
    if (text === '') navigate(PATHNAME)
    else if (by === 'id' || text.startsWith('op_')) navigate(pathOf({ page: 'operation', id: text }))
    else navigate(urlWith(PATHNAME, { [by]: text }))
  }
  const sought = query.item_key ?? query.effect_key ?? ''
  return (
    <search>
      <form class="search" onSubmit={search}>
        <select
          aria-label={t.operations.searchFor}
          value={by}
          onChange={(event) => setBy(event.currentTarget.value as SearchBy)}
        >
          {(['id', 'item_key', 'effect_key'] as const).map((kind) => (
            <option key={kind} value={kind}>
              {t.operations.searchBy[kind]}
            </option>
          ))}
        </select>
        <input
          key={sought}
          type="search"
          name="q"
          aria-label={t.operations.search}
          aria-describedby="search-hint"
          defaultValue={sought}
          autoComplete="off"
          spellcheck={false}
        />
        <button type="submit">{t.operations.search}</button>
        <p id="search-hint" class="small muted">
          {t.operations.searchHint}
        </p>
      </form>
    </search>
  )
}

const LABEL = 'label.'

const Filters = ({ query }: { query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const types = useRead('types', (signal) => client.get('/operation-types', { signal }), null)
  const labels = Object.entries(query).filter(([name]) => name.startsWith(LABEL))
  const chosen = Object.keys(operationFilters(query)).filter((name) => name !== 'cursor')
  const toTime = (text: string): string => (text === '' ? '' : new Date(text).toISOString())
  const filter = (values: FormData): void => {
    const noLabels = Object.fromEntries(labels.map(([name]) => [name, undefined]))
    const [name = '', ...rest] = textOf(values, 'label').split('=')
    changeQuery(
      withFilters(query, {
        ...noLabels,
        status: joined(values, 'status'),
        type: textOf(values, 'type'),
        requested_by: textOf(values, 'requested_by'),
        created_after: toTime(textOf(values, 'created_after')),
        created_before: toTime(textOf(values, 'created_before')),
        replay_of: textOf(values, 'replay_of'),
        ...(name.trim() === '' ? {} : { [`${LABEL}${name.trim()}`]: rest.join('=').trim() }),
      }),
    )
  }
  const typeNames = new Set([...(types.data?.items ?? []).map(({ name }) => name), ...(query.type ? [query.type] : [])])
  return (
    <details class="filter-box" open={chosen.length > 0}>
      <summary>
        {t.form.apply}
        {chosen.length > 0 && ` (${chosen.length})`}
      </summary>
      <FilterForm label={t.form.apply} onFilter={filter} onClear={() => navigate(PATHNAME)}>
        <CheckFields
          name="status"
          label={t.operations.status}
          chosen={listOf(query.status)}
          choices={Object.entries(t.status).map(([value, text]) => ({ value, text }))}
        />
        <SelectField
          name="type"
          label={t.operations.type}
          value={query.type}
          choices={[...typeNames].map((name) => ({ value: name, text: name }))}
        />
        <TextField name="requested_by" label={t.operations.requestedBy} value={query.requested_by} />
        <TextField
          name="created_after"
          label={t.operations.createdAfter}
          type="datetime-local"
          value={toLocal(query.created_after)}
        />
        <TextField
          name="created_before"
          label={t.operations.createdBefore}
          type="datetime-local"
          value={toLocal(query.created_before)}
        />
        <TextField name="replay_of" label={t.operations.replayOf} value={query.replay_of} />
        <TextField
          name="label"
          label={t.operations.label}
          value={labels.map(([name, value]) => `${name.slice(LABEL.length)}=${value}`)[0]}
        />
      </FilterForm>
    </details>
  )
}

/** As the field shows it: the person's own time, to the minute. */
const toLocal = (at: string | undefined): string | undefined => {
  const date = new Date(at ?? '')
  if (Number.isNaN(date.getTime())) return undefined
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

const Table = ({
  operations,
  itemKey,
}: {
  operations: readonly Operation[]
  itemKey?: string | undefined
}): JSX.Element => {
  const { t, language } = useApp()
  return (
    <DataTable
      caption={t.operations.list}
      rows={operations}
      keyOf={({ id }) => id}
      empty={t.nothingHere}
      columns={[
        {
          name: t.operations.operation,
          isHeader: true,
          cell: ({ id, type }) => (
            <>
              <Link href={pathOf({ page: 'operation', id })}>{type}</Link>
              <br />
              <code class="small">{id}</code>
              {itemKey !== undefined && (
                <>
                  <br />
                  <Link href={pathOf({ page: 'item', id, key: itemKey })}>
                    {t.operation.item} {itemKey}
                  </Link>
                </>
              )}
            </>
          ),
        },
        {
          name: t.operations.status,
          cell: (operation) => (
            <>
              <StatusBadge status={operation.status} />
              <p class="small sentence">{statusSentence(operation, t, language)}</p>
              {operation.stuck_signals.length > 0 && (
                <p class="small signal">
                  {operation.stuck_signals.map((signal) => lookUp(t.signal, signal)).join(', ')}
                </p>
              )}
            </>
          ),
        },
        {
          name: t.operations.progress,
          cell: ({ id, progress }) => <ProgressBar ratio={progress.ratio} label={`${t.operations.progress} ${id}`} />,
        },
        { name: t.operations.requestedBy, cell: ({ requested_by }) => requested_by },
        { name: t.operations.created, cell: ({ created_at }) => <Age at={created_at} /> },
      ]}
    />
  )
}
