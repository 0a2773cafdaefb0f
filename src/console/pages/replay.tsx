import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { OperationLink } from '../parts/operation-links.tsx'
import { ReplayPanel } from '../parts/replay-panel.tsx'

export const ReplayPage = ({ id }: { id: string }): JSX.Element => {
  const { t } = useApp()
  return (
    <>
      <h1>{t.replay.title}</h1>
      <p>
        {t.replay.of} <OperationLink id={id} />
      </p>
      <ReplayPanel operationId={id} scope={null} />
    </>
  )
}
