import type { JSX } from 'preact'
import type { Operation } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { Link } from '../navigation.tsx'
import { Action } from '../parts/action-form.tsx'
import { pathOf } from '../router.ts'
import { lookUp, possibleFor } from '../status.ts'

interface ActionsProps {
  operation: Operation
  onDone: () => void
}

/** What a person may ask of the operation now. The service decides; refused, its words stand in the form. */
export const OperationActions = ({ operation, onDone }: ActionsProps): JSX.Element => {
  const { client, t, language } = useApp()
  const { id, counts, cancel } = operation
  const possible = possibleFor(operation)
  const path = { id }
  const count = (value: number): string => formatCount(value, language)
  const decide = (decision: 'approve' | 'reject') => (note: string | null) =>
    client.post('/operations/{id}/approval', { path, body: { decision, note } })
  const isNothingPossible = Object.values(possible).every((one) => !one)
  return (
    <section aria-labelledby="actions" class="actions">
      <h2 id="actions" class="quiet">
        {t.operation.actions}
      </h2>
      {isNothingPossible && <p class="muted">{t.operation.noActions}</p>}
      {possible.decide && (
        <>
          <Action {...t.operation.approve} reason="note" run={decide('approve')} onDone={onDone} />
          <Action {...t.operation.reject} reason="note" isDangerous run={decide('reject')} onDone={onDone} />
        </>
      )}
      {possible.start && (
        <Action
          {...t.operation.start}
          what={t.operation.start.what(count(counts.total))}
          reason="optional"
          run={(reason) => client.post('/operations/{id}/start', { path, body: { reason } })}
          onDone={onDone}
        />
      )}
      {possible.resume && (
        <Action
          {...t.operation.resume}
          reason="optional"
          run={(reason) => client.post('/operations/{id}/resume', { path, body: { reason } })}
          onDone={onDone}
        />
      )}
      {possible.pause && (
        <Action
          {...t.operation.pause}
          reason="optional"
          run={(reason) => client.post('/operations/{id}/pause', { path, body: { reason } })}
          onDone={onDone}
        />
      )}
      {possible.cancel && (
        <Action
          {...t.operation.cancel}
          what={
            <>
              <p>{t.operation.cancel.what(count(counts.total - counts.unprocessed), count(counts.unprocessed))}</p>
              <p>
                {t.operation.guarantee}: {lookUp(t.guarantee, cancel.guarantee)}.
              </p>
            </>
          }
          reason="optional"
          isDangerous
          run={(reason) => client.post('/operations/{id}/cancel', { path, body: { reason } })}
          onDone={onDone}
        />
      )}
      {possible.replay && (
        <Link class="button" href={pathOf({ page: 'replay', id })}>
          {t.operation.replay}
        </Link>
      )}
    </section>
  )
}
