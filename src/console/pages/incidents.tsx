import type { JSX } from 'preact'
import type { Incident } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import { changeQuery, Link, navigate } from '../navigation.tsx'
import { Badge } from '../parts/badge.tsx'
import { DataTable } from '../parts/data-table.tsx'
import { FilterForm, SelectField, TextField, textOf } from '../parts/fields.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Pager } from '../parts/pager.tsx'
import { Age } from '../parts/time.tsx'
import { pathOf, type Query, withFilters } from '../router.ts'
import { lookUp } from '../status.ts'

const EVERY_MS = 5_000
const PAGE_LIMIT = 50
const PATHNAME = pathOf({ page: 'incidents' })

export const IncidentsPage = ({ query }: { query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const filters = { status: query.status ?? 'open', type: query.type, cursor: query.cursor }
  const list = useRead(
    `incidents?${JSON.stringify(filters)}`,
    (signal) => client.get('/incidents', { query: { ...filters, limit: PAGE_LIMIT }, signal }),
    EVERY_MS,
  )
  const filter = (values: FormData): void =>
    changeQuery(withFilters(query, { status: textOf(values, 'status'), type: textOf(values, 'type') }))
  return (
    <>
      <h1>{t.incidents.title}</h1>
      <p>{t.incidents.explanation}</p>
      <FilterForm label={t.form.apply} onFilter={filter} onClear={() => navigate(PATHNAME)}>
        <SelectField
          name="status"
          label={t.incidents.status}
          value={filters.status}
          isOptional={false}
          choices={[
            { value: 'open', text: t.incidentStatus.open ?? '' },
            { value: 'resolved', text: t.incidentStatus.resolved ?? '' },
            { value: 'open,resolved', text: t.form.all },
          ]}
        />
        <TextField name="type" label={t.operations.type} value={query.type} />
      </FilterForm>
      <Loaded read={list}>
        {({ items, next_cursor }) => (
          <>
            <IncidentTable incidents={items} />
            <Pager pathname={PATHNAME} query={query} next={next_cursor} />
          </>
        )}
      </Loaded>
    </>
  )
}

const IncidentTable = ({ incidents }: { incidents: readonly Incident[] }): JSX.Element => {
  const { t, language } = useApp()
  const count = (value: number): string => formatCount(value, language)
  return (
    <DataTable
      caption={t.incidents.list}
      rows={incidents}
      keyOf={({ id }) => id}
      empty={t.incidents.empty}
      columns={[
        {
          name: t.incidents.sample,
          isHeader: true,
          cell: ({ id, type, sample }) => (
            <>
              <Link href={pathOf({ page: 'incident', id })}>{sample.message ?? sample.reason_code ?? id}</Link>
              <p class="small">
                {type} · {lookUp(t.failureClass, sample.failure_class)}
              </p>
            </>
          ),
        },
        {
          name: t.incidents.letters,
          cell: ({ open_count, count: all, operation_count }) =>
            t.incidents.openOf(count(open_count), count(all), count(operation_count)),
        },
        {
          name: t.incidents.status,
          cell: ({ status }) => (
            <Badge tone={status === 'open' ? 'bad' : 'good'}>{lookUp(t.incidentStatus, status)}</Badge>
          ),
        },
        { name: t.incidents.firstSeen, cell: ({ first_seen_at }) => <Age at={first_seen_at} /> },
        { name: t.incidents.lastSeen, cell: ({ last_seen_at }) => <Age at={last_seen_at} /> },
      ]}
    />
  )
}
