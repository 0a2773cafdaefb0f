import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { Case } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { useRead } from '../live/use-read.ts'
import { changeQuery, navigate } from '../navigation.tsx'
import { CaseTable } from '../parts/case-table.tsx'
import { FilterForm, joined, SelectField, TextField, textOf } from '../parts/fields.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Pager } from '../parts/pager.tsx'
import { ResolveCasesForm } from '../parts/resolve-cases-form.tsx'
import { pathOf, type Query, withFilters } from '../router.ts'

const EVERY_MS = 5_000
const PAGE_LIMIT = 50
const PATHNAME = pathOf({ page: 'reconciliation' })

/** The queue of what may or may not have happened. Open cases, unless the URL asks for others. */
export const ReconciliationPage = ({ query }: { query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const filters = {
    status: query.status ?? 'open',
    type: query.type,
    operation_id: query.operation_id,
    item_key: query.item_key,
    cursor: query.cursor,
  }
  const list = useRead(
    `cases?${JSON.stringify(filters)}`,
    (signal) => client.get('/reconciliation', { query: { ...filters, limit: PAGE_LIMIT }, signal }),
    EVERY_MS,
  )
  const open = useMemo(() => (list.data?.items ?? []).filter(({ status }) => status === 'open'), [list.data])
  // a case that was closed meanwhile, or is on another page, is not resolved by mistake
  const chosenCases = open.filter(({ id }) => chosen.has(id))
  const toggle = ({ id }: Case): void =>
    setChosen((before) =>
      before.has(id) ? new Set([...before].filter((one) => one !== id)) : new Set([...before, id]),
    )
  const chooseAll = (isChosen: boolean): void => setChosen(new Set(isChosen ? open.map(({ id }) => id) : []))
  return (
    <>
      <h1>{t.reconciliation.title}</h1>
      <p>{t.reconciliation.explanation}</p>
      <Filters query={query} />
      <ResolveCasesForm cases={chosenCases} onDone={list.refresh} />
      <Loaded read={list}>
        {({ items, next_cursor }) => (
          <>
            {open.length > 1 && (
              <label class="check">
                <input
                  type="checkbox"
                  checked={chosenCases.length === open.length}
                  onChange={(event) => chooseAll(event.currentTarget.checked)}
                />{' '}
                {t.reconciliation.selectAll}
              </label>
            )}
            <CaseTable cases={items} chosen={chosen} onToggle={toggle} onChanged={list.refresh} />
            <Pager pathname={PATHNAME} query={query} next={next_cursor} />
          </>
        )}
      </Loaded>
    </>
  )
}

const Filters = ({ query }: { query: Query }): JSX.Element => {
  const { t } = useApp()
  const filter = (values: FormData): void =>
    changeQuery(
      withFilters(query, {
        status: joined(values, 'status'),
        type: textOf(values, 'type'),
        operation_id: textOf(values, 'operation_id'),
        item_key: textOf(values, 'item_key'),
      }),
    )
  return (
    <FilterForm label={t.form.apply} onFilter={filter} onClear={() => navigate(PATHNAME)}>
      <SelectField
        name="status"
        label={t.reconciliation.status}
        value={query.status ?? 'open'}
        isOptional={false}
        choices={[
          { value: 'open', text: t.caseStatus.open ?? '' },
          { value: 'resolved', text: t.caseStatus.resolved ?? '' },
          { value: 'open,resolved', text: t.form.all },
        ]}
      />
      <TextField name="type" label={t.reconciliation.type} value={query.type} />
      <TextField name="operation_id" label={t.reconciliation.operationId} value={query.operation_id} />
      <TextField name="item_key" label={t.reconciliation.itemKey} value={query.item_key} />
    </FilterForm>
  )
}
